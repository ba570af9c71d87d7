"""What a metric is: its name, labels and kind, and how the values of several processes become one."""

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
