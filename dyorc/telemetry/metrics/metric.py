"""A metric: its name, labels and kind, how the values of several processes become one, and how its label values stay bounded."""

from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """A Prometheus type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Combine(Enum):
    """How one value is made of those of several processes."""

    SUM = "sum"
    MAX = "max"


UNITS = ("seconds", "bytes", "ratio")
"""Units that a name ends with (before `_total`), as Prometheus has it. Everything else is a plain number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One family of time series.

    Attributes:
        group: The heading under which it is described.
        help: What it says, for people.
        labels: The names of its labels, in the order in which values are given.
        bounds: Of a histogram, in its unit; the last bucket has no bound.
    """

    name: str
    kind: MetricKind
    group: str
    help: str
    labels: tuple[str, ...] = ()
    combine: Combine = Combine.SUM
    bounds: tuple[float, ...] = ()

    @property
    def unit(self) -> str:
        """One of `UNITS`; empty for a plain number."""
        base = self.name.removesuffix("_total")
        return next((unit for unit in UNITS if base.endswith(f"_{unit}")), "")

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which Prometheus stores it."""
        if self.kind is MetricKind.HISTOGRAM:
            return tuple(f"{self.name}{suffix}" for suffix in ("_bucket", "_count", "_sum"))
        return (self.name,)


MAX_TENANTS = 100
"""Tenants that have their own labels in a process's metrics."""
OTHER = "other"


class BoundedLabels:
    """Gives the first names their own label; all later names share `OTHER`.

    A name keeps its label for good, since counters must never go back: with "the largest so far", names would move between their
    own series and the common one.

    Args:
        max_names: How many names get their own label.
    """

    def __init__(self, max_names: int = MAX_TENANTS) -> None:
        self._max_names = max_names
        self._names: set[str] = set()

    def label_of(self, name: str) -> str:
        """Returns the label's value for a name."""
        if name in self._names:
            return name
        if len(self._names) >= self._max_names:
            return OTHER
        self._names.add(name)
        return name
