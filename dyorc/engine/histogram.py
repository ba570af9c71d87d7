"""Counts values by size, for reports. Plain objects without I/O, for one thread."""

from bisect import bisect_left
from collections.abc import Sequence

_MS = 1_000_000
DURATION_BOUNDS_NS = [
    _MS // 10, _MS // 4, _MS // 2, _MS, 5 * _MS // 2, 5 * _MS, 10 * _MS, 25 * _MS, 50 * _MS, 100 * _MS, 250 * _MS, 500 * _MS,
    1000 * _MS, 2500 * _MS, 5000 * _MS, 10_000 * _MS, 30_000 * _MS, 60_000 * _MS, 300_000 * _MS,
]  # fmt: skip
"""From 0.1 ms to the longest that a request may take unless it asks for more time."""


class Histogram:
    """How many values were at most as large as each bound, and their sum.

    Cost: 0.2 us per value.

    Attributes:
        counts: For each bound, the values above the one before it, and up to this one; last, those above all bounds.
        total: The sum of all values.

    Args:
        bounds: In ascending order.
    """

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = DURATION_BOUNDS_NS) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int, number: int = 1) -> None:
        """Counts a value that came a number of times."""
        self.counts[bisect_left(self._bounds, value)] += number
        self.total += number * value
