"""What is known of inputs that have come before. The shell keeps it, so an engine that takes over still knows it."""

from collections.abc import Hashable
from typing import Generic, TypeAlias, TypeVar

V = TypeVar("V")

Key: TypeAlias = tuple[str, Hashable]
"""A program's name, and the identity that equal requests share."""


class KnownInputs(Generic[V]):
    """A limited number of inputs, oldest first, each kept for the same time.

    Attributes:
        num_of: How many inputs are known, by program; programs without any are missing.
    """

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[V, int]] = {}
        self.num_of: dict[str, int] = {}

    def keep(self, key: Key, value: V, now_ns: int, until_ns: int, max_kept: int) -> None:
        """Remembers a value for a key, or renews it. Forgets values that are too old, and the oldest if there are more than
        `max_kept`."""
        self.drop(key)
        while self._kept and (len(self._kept) >= max_kept or next(iter(self._kept.values()))[1] <= now_ns):
            self.drop(next(iter(self._kept)))
        if max_kept:
            self._kept[key] = value, until_ns
            self.num_of[key[0]] = self.num_of.get(key[0], 0) + 1

    def get(self, key: Key, now_ns: int) -> tuple[V, float] | None:
        """Returns what is known, and for how many more seconds it is kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        value, until_ns = found
        if until_ns <= now_ns:
            self.drop(key)
            return None
        return value, (until_ns - now_ns) / 1e9

    def drop(self, key: Key) -> None:
        """Forgets a key, if it is known."""
        if self._kept.pop(key, None) is None:
            return
        self.num_of[key[0]] -= 1
        if not self.num_of[key[0]]:
            del self.num_of[key[0]]
