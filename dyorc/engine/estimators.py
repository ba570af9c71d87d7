"""Sums and averages of what was measured: counts by size, means, rates. For one thread."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

_MS = 1_000_000
DURATION_BOUNDS_NS = [
    _MS // 10, _MS // 4, _MS // 2, _MS, 5 * _MS // 2, 5 * _MS, 10 * _MS, 25 * _MS, 50 * _MS, 100 * _MS, 250 * _MS, 500 * _MS,
    1000 * _MS, 2500 * _MS, 5000 * _MS, 10_000 * _MS, 30_000 * _MS, 60_000 * _MS, 300_000 * _MS,
]  # fmt: skip
"""From 0.1 ms to the longest that a request may take unless it asks for more time."""
_MIN_NS, _MAX_NS, _MAX_STEP = 20_000, 600_000 * _MS, 1.05


def _subdivide(bounds: Sequence[int]) -> list[int]:
    fine = [bounds[0]]
    for lower, upper in pairwise(bounds):
        num_steps = math.ceil(math.log(upper / lower, _MAX_STEP))
        fine += [round(lower * (upper / lower) ** (step / num_steps)) for step in range(1, num_steps + 1)]
    return fine


LATENCY_BOUNDS_NS = _subdivide([_MIN_NS, *DURATION_BOUNDS_NS, _MAX_NS])
"""From 20 us to 10 minutes, each at most 5 % above the last, so a quantile is right to 5 %. `DURATION_BOUNDS_NS` are among
them, for Prometheus: hundreds of buckets would be hundreds of series."""


class Histogram:
    """How many values were at most as large as each bound, and their sum.

    Cost: 0.2 us per value, with many bounds, too: a bucket is found by bisection.

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

    def add_all(self, values: Iterable[int]) -> None:
        """Counts several values; many are equal."""
        for value, number in Counter(values).items():
            self.add(value, number)

    def over(self, bounds: Sequence[float]) -> "Histogram":
        """Returns the same values counted by fewer bounds, which are all bounds of this histogram."""
        coarse = Histogram(bounds)
        for bound, number in zip([*self._bounds, math.inf], self.counts, strict=True):
            if number:
                coarse.counts[bisect_left(bounds, bound)] += number
        coarse.total = self.total
        return coarse


class Average:
    """A mean with exponential decay; 0 before the first value."""

    __slots__ = ("_num_seen", "_rate", "value")

    def __init__(self, rate: float = 0.05) -> None:
        self._rate = rate
        self._num_seen = 0
        self.value = 0.0

    def add(self, value: float) -> None:
        """Adds a value."""
        self._num_seen += 1
        self.value += max(self._rate, 1 / self._num_seen) * (value - self.value)


class Rate:
    """Events per second, forgotten exponentially.

    Args:
        window_s: Time constant, in seconds.
    """

    __slots__ = ("_count", "_from_ns", "_last_ns", "_window_s")

    def __init__(self, window_s: float = 1.0) -> None:
        self._window_s = window_s
        self._count = 0.0
        self._last_ns = 0
        self._from_ns: int | None = None

    def add(self, count: float, now_ns: int) -> None:
        """Adds this many events."""
        if self._from_ns is None:
            self._from_ns = self._last_ns = now_ns
        self._count = self._count * math.exp((self._last_ns - now_ns) / (self._window_s * 1e9)) + count
        self._last_ns = now_ns

    def per_s(self, now_ns: int) -> float | None:
        """Returns the rate; None until a tenth of the window has passed, because a single burst says nothing."""
        if self._from_ns is None:
            return None
        age_s = (now_ns - self._from_ns) / 1e9
        if age_s < 0.1 * self._window_s:
            return None
        filled_s = self._window_s * -math.expm1(-age_s / self._window_s)
        return self._count * math.exp((self._last_ns - now_ns) / (self._window_s * 1e9)) / filled_s


def queueing_delay_s(busy_s: float, rate: float, num_servers: int, num_idle: int) -> float:
    """Returns how much longer calls are expected to wait, in all, if one of the idle servers is busy this long, in seconds.

    Args:
        rate: Calls per second.
    """
    num_arrivals = rate * busy_s
    # With other servers idle, a call waits only if enough others come first.
    return num_arrivals * busy_s / (2 * num_servers * num_servers) * min(1.0, num_arrivals / num_idle) ** (num_idle - 1)
