"""DyOrc and a peer, measured within the same minute: the median of their ratios, and how sure it is.

The machine's speed changes within minutes, for both alike. So a round's figures are compared with each other only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from benchmarks.table.records import Cell

_COVERAGE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """The ratio of a peer's figure to DyOrc's, over the rounds in which both were measured.

    Attributes:
        median: Above 1 where DyOrc is ahead.
        low, high: An interval of order statistics for the median.
        coverage: How probable it is that the interval holds the median; below 0.95 if there are fewer than six rounds.
    """

    median: float
    low: float
    high: float
    coverage: float
    num_rounds: int

    @property
    def is_clear(self) -> bool:
        """Whether all of the interval is on one side."""
        return self.low > 1 or self.high < 1

    @property
    def spread(self) -> float:
        """How far the ends of the interval are apart: the larger divided by the smaller, minus 1."""
        return self.high / self.low - 1


def paired(ours: Cell, theirs: Cell, figure: str) -> PairedRatio | None:
    """Returns the ratio for one figure, such as "p50"; None if there is no common round."""
    mine = dict(zip(ours.rounds, getattr(ours, f"{figure}s_ms"), strict=True)) if ours.rounds else {}
    other = dict(zip(theirs.rounds, getattr(theirs, f"{figure}s_ms"), strict=True)) if theirs.rounds else {}
    return ratio_of([other[at] / mine[at] for at in sorted(mine) if at in other and mine[at] > 0 and other[at] > 0])


def ratio_of(ratios: Sequence[float]) -> PairedRatio | None:
    """Returns the median of ratios with its interval; None if there are none."""
    if not ratios:
        return None
    ordered, number = sorted(ratios), len(ratios)
    at = next((at for at in reversed(range((number + 1) // 2)) if _coverage(number, at) >= _COVERAGE), 0)
    return PairedRatio(
        median=median(ordered),
        low=ordered[at],
        high=ordered[number - 1 - at],
        coverage=_coverage(number, at),
        num_rounds=number,
    )


def _coverage(number: int, at: int) -> float:
    """Returns how probable it is that the median of the distribution lies between the at-th lowest and highest of some draws."""
    return 1 - 2 * sum(comb(number, below) for below in range(at + 1)) / 2**number
