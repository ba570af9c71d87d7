"""Quantiles of what was counted in buckets lately."""

from collections import deque
from collections.abc import Sequence

WINDOW_S = 10
"""Quantiles are those of so many seconds: fewer hold too few requests to speak of a hundredth."""


class RecentCounts:
    """What was added to a histogram in the last `WINDOW_S` samples, one of which is taken each second."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[Sequence[int]] = deque(maxlen=WINDOW_S + 1)

    def sample(self, counts: Sequence[int]) -> list[int]:
        """Adds the counts of now, which only grow, and returns how much they have grown in the window."""
        self._samples.append(counts)
        return [now - before for now, before in zip(counts, self._samples[0], strict=True)]


def quantile(bounds: Sequence[int], counts: Sequence[int], part: float) -> float | None:
    """Returns the value below which this part of all values lies, as if they were spread evenly over their buckets.

    Args:
        bounds: The upper bounds of all buckets but the last, whose values count as its lower bound.
        counts: The values in each bucket.

    Returns:
        None if there are no values.
    """
    rank = part * sum(counts)
    if not rank:
        return None
    lower = 0
    for bound, count in zip(bounds, counts, strict=False):
        if count and rank <= count:
            return lower + (bound - lower) * rank / count
        rank -= count
        lower = bound
    return float(lower)


def quantile_ms(bounds_ns: Sequence[int], counts: Sequence[int], part: float) -> float | None:
    """Returns the same of durations, in milliseconds."""
    duration_ns = quantile(bounds_ns, counts, part)
    return None if duration_ns is None else round(duration_ns / 1e6, 3)
