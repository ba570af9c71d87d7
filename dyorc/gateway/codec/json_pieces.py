"""JSON of answers. Long arrays are written piece by piece, because orjson lets no other thread run while it works.

Called on the event loop for small answers, on a thread for large ones.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from dyorc.gateway.copies import PAUSE_S, PIECE_ITEMS


def json_parts(value: Mapping[str, Any]) -> list[bytes]:
    """Returns an object as JSON, in one part unless it holds long arrays. NumPy arrays in it must be flat."""
    if not _has_long(value):
        return [_dumps(value)]
    parts: list[bytes] = []
    short: list[bytes] = []
    for part in _written(value):
        short.append(part)
        if len(part) > PIECE_ITEMS:
            parts.append(b"".join(short))
            short = []
    return [*parts, b"".join(short)]


def short_json(value: Mapping[str, Any]) -> bytes:
    """Returns an object as JSON, of which the caller knows that it holds no long array."""
    return _dumps(value)


def _has_long(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_long(each) for each in value.values())
    if isinstance(value, np.ndarray):
        return value.size > PIECE_ITEMS
    return isinstance(value, list) and (
        len(value) > PIECE_ITEMS or any(isinstance(item, dict) and _has_long(item) for item in value)
    )


def _written(value: Any) -> Iterator[bytes]:
    if not _has_long(value):
        yield _dumps(value)
    elif isinstance(value, Mapping):
        for at, (name, each) in enumerate(value.items()):
            yield (b"," if at else b"{") + _dumps(name) + b":"
            yield from _written(each)
        yield b"}"
    elif isinstance(value, list) and isinstance(value[0], dict):
        for at, each in enumerate(value):
            yield b"," if at else b"["
            yield from _written(each)
        yield b"]"
    else:
        yield from _pieces(value)


def _pieces(items: Sequence[Any]) -> Iterator[bytes]:
    """Yields the pieces of a long array."""
    for at in range(0, len(items), PIECE_ITEMS):
        yield (b"," if at else b"[") + _dumps(items[at : at + PIECE_ITEMS])[1:-1]
        time.sleep(PAUSE_S)
    yield b"]"


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, _python_of, orjson.OPT_SERIALIZE_NUMPY)


def _python_of(value: Any) -> Any:
    """Returns NumPy's numbers that orjson does not know as Python's: for one size of integer, NumPy has several types."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError  # orjson names the type
