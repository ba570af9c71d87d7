"""What clients of the store asked for, and what was acknowledged, as marks in the log.

Each thing that is kept (a job, a note, a file) is changed by one client at a time, so it goes from value to value. A client marks
each change before it asks for it, and again when it has the answer. After a cut, the value has to be that of the last
acknowledged change or of a later one that was asked for.
"""

from typing import Any

import msgspec

from tests.power_cuts.file_log import mark

Value = Any
"""As JSON; None: it is not there."""


class _Mark(msgspec.Struct, frozen=True):
    """A change; `value` is None for its acknowledgement, too."""

    key: str
    number: int
    is_answer: bool
    value: Value = None


class Change:
    """A change that a client makes: marked as it is entered, and acknowledged when the block ends without an error.

    Args:
        key: What is changed.
        number: Grows with each change of that key.
        value: What it is then.
    """

    def __init__(self, key: str, number: int, value: Value) -> None:
        self._key, self._number, self._value = key, number, value

    def __enter__(self) -> None:
        mark(msgspec.json.encode(_Mark(self._key, self._number, is_answer=False, value=self._value)).decode())

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            mark(msgspec.json.encode(_Mark(self._key, self._number, is_answer=True)).decode())


class Expectations:
    """What may be there at one place of the log.

    Attributes:
        num_answers: How many changes were acknowledged.
    """

    def __init__(self) -> None:
        self.num_answers = 0
        self._values: dict[str, dict[int, Value]] = {}
        self._answered: dict[str, int] = {}

    def add(self, text: bytes) -> None:
        """Adds a mark."""
        read = msgspec.json.decode(text, type=_Mark)
        if read.is_answer:
            self.num_answers += 1
            self._answered[read.key] = max(read.number, self._answered.get(read.key, 0))
        else:
            self._values.setdefault(read.key, {0: None})[read.number] = read.value

    def keys(self, kind: str) -> list[str]:
        """Returns the names of all things of a kind that were ever asked for."""
        return [key.removeprefix(kind) for key in self._values if key.startswith(kind)]

    def allowed(self, key: str, *, may_be_lost: bool = False) -> list[Value]:
        """Returns the values that a thing may have.

        Args:
            may_be_lost: Whether what was acknowledged may be lost.
        """
        first = 0 if may_be_lost else self._answered.get(key, 0)
        return [value for number, value in self._values.get(key, {0: None}).items() if number >= first]

    def wrong(self, key: str, value: Value, *, may_be_lost: bool = False) -> list[str]:
        """Returns what is wrong with a value, as a text or nothing."""
        if value in (allowed := self.allowed(key, may_be_lost=may_be_lost)):
            return []
        return [f"{key} is {_short(value)}, expected one of {_short(allowed)}"]


def _short(value: Value) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}..."
