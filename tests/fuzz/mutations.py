"""Changes valid inputs in ways that their form allows: a value in a tree, a line, a word.

The same random numbers make the same change.
"""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from tests.fuzz.contract import FuzzTarget, InputForm

MAX_BYTES = 16 * 1024
_MAX_CHANGES = 4
_ODD_NUMBERS = (0, -1, 1, 2, 127, 128, 255, 256, 2**15, 2**31 - 1, 2**31, 2**32, 2**48, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63))
_ODD_VALUES: tuple[Any, ...] = (
    *_ODD_NUMBERS, None, True, False, "", "\0", "\ud800", "é", "a" * 300, 0.5, -0.0, 1e308, 5e-324, float("nan"),
    float("inf"), [], {},
    [[]], [None], {"": None}, 10**25, "1e5", "NaN",
)  # fmt: skip
_ODD_BYTES = (
    b"\0",
    b"\xff",
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"\x0b",
    b"\xc3\x28",
    b'"',
    b"\\",
    b"\x7f",
    b"9" * 5000,
    b"[" * 2000,
)
_NUMBER = re.compile(rb"\d+")


def mutate(data: bytes, target: FuzzTarget, random: Random) -> bytes:
    """Returns an input like this one."""
    for _ in range(random.randint(1, _MAX_CHANGES)):
        if random.random() < _TREE_SHARE and target.form in _TREES:
            data = _TREES[target.form](data, target, random)
        elif target.form is InputForm.LINES and random.random() < _TREE_SHARE:
            data = _with_other_lines(data, random)
        else:
            data = random.choice(_CHANGES)(data, target, random)
    return data[:MAX_BYTES]


_TREE_SHARE = 0.7


# Anything


def _flip(data: bytes, _: FuzzTarget, random: Random) -> bytes:
    if not data:
        return b"\0"
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _insert(data: bytes, target: FuzzTarget, random: Random) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.choice((*_ODD_BYTES, *target.words)) + data[at:]


def _cut(data: bytes, _: FuzzTarget, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _repeat(data: bytes, _: FuzzTarget, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:end] + data[start:end] * random.choice((1, 1, 1, 2, 50)) + data[end:]


def _splice(data: bytes, target: FuzzTarget, random: Random) -> bytes:
    other = random.choice(target.seeds)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _renumber(data: bytes, _: FuzzTarget, random: Random) -> bytes:
    numbers = list(_NUMBER.finditer(data))
    if not numbers:
        return data
    match = random.choice(numbers)
    return data[: match.start()] + str(random.choice(_ODD_NUMBERS)).encode() + data[match.end() :]


def _span(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randint(0, len(data))
    return start, min(len(data), start + random.choice((1, 2, 4, 16, 64)))


_CHANGES: Sequence[Callable[[bytes, FuzzTarget, Random], bytes]] = (_flip, _insert, _cut, _repeat, _splice, _renumber)


# Lines


def _with_other_lines(data: bytes, random: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at = random.randrange(len(lines))
    match random.randrange(7):
        case 0:
            lines.insert(at, lines[random.randrange(len(lines))])
        case 1:
            del lines[at]
        case 2:
            other = random.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = lines[at].replace(b"\r\n", random.choice((b"\n", b"\r", b"\r\r\n", b" \r\n", b"\r\n ", b"\0\r\n")))
        case 4:
            sign = random.choice((b":", b"="))
            lines[at] = lines[at].replace(sign, random.choice((b" " + sign, sign + b"\t ", sign * 2, b"")), 1)
        case 5:
            lines[at] = lines[at].swapcase()
        case _:
            lines[at] = random.choice((b" ", b"\t")) + lines[at]
    return b"".join(lines)


# Trees


def _with_other_json(data: bytes, target: FuzzTarget, random: Random) -> bytes:
    at = data.find(b"{")
    text = data[at:].decode("latin-1")
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return data
    return data[:at] + _json_of(_with_other_value(value, target, random)) + data[at:][end:]


def _json_of(value: Any) -> bytes:
    return json.dumps(value).encode()


def _with_other_msgpack(data: bytes, target: FuzzTarget, random: Random) -> bytes:
    try:
        changed = _with_other_value(msgspec.msgpack.decode(data), target, random)
        return msgspec.msgpack.encode(changed)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, TypeError):
        return data


_TREES: dict[InputForm, Callable[[bytes, FuzzTarget, Random], bytes]] = {
    InputForm.JSON: _with_other_json,
    InputForm.MSGPACK: _with_other_msgpack,
}


def _with_other_value(root: Any, target: FuzzTarget, random: Random) -> Any:
    """Changes one value of a tree, in place where that is possible."""
    holder: dict[str, Any] = {"": root}
    places = list(_places(holder))
    table, key = random.choice(places)
    match random.randrange(6):
        case 0 | 1:
            table[key] = random.choice((*_ODD_VALUES, *[word.decode("latin-1") for word in target.words]))
        case 2:
            other, other_key = random.choice(places)
            table[key] = _copy(other[other_key])
        case 3:
            table[key] = [_copy(table[key]) for _ in range(random.choice((1, 2, 70)))]
        case 4 if table is not holder:
            del table[key]
        case _:
            if isinstance(table, dict) and table is not holder:
                table[random.choice((str(key) + "x", "", "\0"))] = table[key]
            elif isinstance(table[key], int):
                table[key] = random.choice(_ODD_NUMBERS)
            else:
                table[key] = {str(key): table[key]}
    return holder[""]


def _places(table: Any) -> list[tuple[Any, Any]]:
    places: list[tuple[Any, Any]] = []
    keys = list(table) if isinstance(table, dict) else range(len(table))
    for key in keys:
        places.append((table, key))
        if isinstance(table[key], dict | list):
            places += _places(table[key])
    return places


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value)) if isinstance(value, dict | list) and _is_plain(value) else value


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
