"""The bands of all tables: how far ours may be from a figure and still count as equal to it. Every row shows its own.

A band is chosen by how a figure is found, not row by row: a number that follows from counting has to be closer than one that is
simulated. Trends have their own band, next to those of their points.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Band:
    """Within what ours counts as equal.

    Attributes:
        text: As tables show it.
        ratio: The relative error up to which numbers are equal; 0 where the text says what has to hold instead.
    """

    text: str
    ratio: float = 0.0

    def holds(self, published: float, ours: float) -> bool:
        """Whether a number of ours is within the band around a published one."""
        return abs(ours / published - 1.0) <= self.ratio


def _within(ratio: float) -> Band:
    return Band(f"± {ratio:.0%}", ratio)


EXACT = Band("exact")
"""The same whole number, the same words, or equal to the bit."""
CLOSE = _within(0.05)
"""Numbers that follow from counting or from one measured cost."""
MODELLED = _within(0.10)
"""Numbers that a model of costs gives, with measured parameters."""
SIMULATED = _within(0.15)
"""Numbers of a simulated cluster, or of a machine that others use, too."""
REPEATED = _within(0.20)
"""Ratios of two short measurements here."""
FRACTIONS = _within(1 / 3)
"""Ratios of measurements of less than a second, which vary by a third."""
SEVERAL = Band("2 or more")
"""Of stages, any of which may take longest."""
MOST = Band("3 or more")
"""Of four."""
FOUND = Band("found, by whatever check")
"""Of faults that were put into plans."""
ROUNDED_64 = Band("error below 1e-12")
SUMMED_64 = Band("error below 1e-10")
ROUNDED_32 = Band("error below 1e-5")
SUMMED_32 = Band("error below 1e-4")
"""Of sums of thousands of terms."""
SPREAD = Band("within twice the spread of seeds")
AT_MOST = Band("at most")
"""Up to the published number, which is a bound."""
WITHIN = Band("between both")
"""Of a published range."""
AT_LEAST = Band("at least")
SIGN = Band("sign alone")
"""Only the side is published, or only the side can be compared: such a row is never equal."""


@dataclass(frozen=True, slots=True)
class TrendBand:
    """Within what two series over the same points count as the same trend.

    Attributes:
        flat_ratio: Up to this relative change a series is flat, neither rising nor falling.
        rank_correlation: The least of Spearman's coefficient between both.
        growth_ratio: The relative error of the last value over the first.
    """

    flat_ratio: float
    rank_correlation: float
    growth_ratio: float

    @property
    def text(self) -> str:
        """As tables show it."""
        return f"direction, ranks {self.rank_correlation:g}, last / first ± {self.growth_ratio:.0%}"


TREND = TrendBand(flat_ratio=0.05, rank_correlation=0.8, growth_ratio=0.15)
