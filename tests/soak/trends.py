"""Whether a series of measurements is flat: its slope, and the interval in which the true slope lies.

Measurements a few seconds apart depend on each other, and what happens in a cycle (a deployment, a rollback) shows in all of
them, so an interval for single measurements would be far too narrow. Here each cycle counts once, by its median. Of these
medians, Theil and Sen's estimator takes the median of the slopes between all pairs; a quarter of them may be outliers. Its
interval comes from the distribution of Kendall's tau and assumes no shape of the noise.

Source: P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 63 (1968).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

import numpy as np
from scipy import stats

_CONFIDENCE = 0.95
MIN_CYCLES = 5
"""With fewer, the interval is as wide as the measurements."""


class Verdict(StrEnum):
    """Of a series."""

    FLAT = auto()
    """The whole interval lies below the bound."""
    GROWS = auto()
    """The whole interval lies above the bound."""
    UNDECIDED = auto()
    """The bound lies in the interval: the run was too short, or too noisy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """What a series does after its warm-up.

    Attributes:
        size: The median of its cycles.
        slope: How much it grows in an hour.
        low, high: The interval in which the true slope lies with 95 % confidence.
        bound: The slope that is allowed.
        num_cycles: How many cycles were looked at.
    """

    size: float
    slope: float
    low: float
    high: float
    bound: float
    num_cycles: int

    @property
    def verdict(self) -> Verdict:
        """What the interval says."""
        if self.high <= self.bound:
            return Verdict.FLAT
        return Verdict.GROWS if self.low > self.bound else Verdict.UNDECIDED

    def to_json(self) -> dict[str, Any]:
        """Returns it in figures, as strict JSON."""
        figures = {"size": self.size, "per_hour": self.slope, "low": self.low, "high": self.high, "bound": self.bound}
        rounded = {name: float(f"{figure:.4g}") for name, figure in figures.items()}
        return {"verdict": str(self.verdict), **rounded, "cycles": self.num_cycles}


def trend_of(
    times_s: Sequence[float], sizes: Sequence[float], *, cycle_s: float, warm_up_s: float, max_ratio: float, min_bound: float
) -> Trend:
    """Returns the trend of a series.

    Args:
        times_s: When each size was measured, since the beginning.
        sizes: What was measured.
        cycle_s: How long a cycle takes.
        warm_up_s: What is left out at the beginning.
        max_ratio: How much of its size the series may grow in an hour.
        min_bound: How much it may grow in an hour however small it is.

    Raises:
        ValueError: If fewer than `MIN_CYCLES` cycles have measurements.
    """
    cycles: dict[int, list[tuple[float, float]]] = {}
    for time_s, size in zip(times_s, sizes, strict=True):
        if time_s >= warm_up_s:
            cycles.setdefault(int((time_s - warm_up_s) / cycle_s), []).append((time_s, size))
    if len(cycles) < MIN_CYCLES:
        raise ValueError(f"{len(cycles)} cycles of {cycle_s:g} s have measurements, expected at least {MIN_CYCLES}")
    middles = np.array([np.median(cycle, axis=0) for cycle in cycles.values()])
    slope, _, low, high = (float(figure) for figure in stats.theilslopes(middles[:, 1], middles[:, 0] / 3600, _CONFIDENCE))
    size = float(np.median(middles[:, 1]))
    bound = max(max_ratio * size, min_bound)
    return Trend(size=size, slope=slope, low=low, high=high, bound=bound, num_cycles=len(cycles))
