"""Requests that arrived one after another, which all guess or do not (`dyorc.engine.guessing.speculation_trial` says which)."""

import math

_NUM_REQUESTS = 12
"""A round has at least this many requests ..."""
_MIN_ROUND_NS = 250_000_000
"""... and lasts at least this long."""


class Round:
    """Requests of one workflow that arrived one after another, all of which guess, or none.

    Attributes:
        is_guessing: Whether they guess.
        num_guesses: Calls of them that ran before they were certain.
    """

    __slots__ = ("_num_ended", "_sum", "is_closed", "is_guessing", "num_arrived", "num_guesses", "started_ns")

    def __init__(self, is_guessing: bool, now_ns: int) -> None:
        self.is_guessing = is_guessing
        self.started_ns = now_ns
        self.is_closed = False
        self.num_arrived = 0
        self.num_guesses = 0
        self._num_ended = 0
        self._sum = 0.0

    def ended(self, took_ns: int) -> None:
        """Takes in how long one of its requests took."""
        self._num_ended += 1
        self._sum += math.log(max(1, took_ns))

    def is_over(self, now_ns: int) -> bool:
        """Returns whether the next request belongs to another round."""
        return self.num_arrived >= _NUM_REQUESTS and now_ns >= self.started_ns + _MIN_ROUND_NS

    @property
    def mean(self) -> float | None:
        """The mean logarithm of its requests' times; None while one of them has not ended."""
        return self._sum / self._num_ended if self.is_closed and self._num_ended == self.num_arrived else None
