"""The values of all metrics at one moment: of a process, or of several together.

Values pass between processes as plain JSON: for each name, a list of label values and value. A histogram's value is a list: the
counts of its buckets, the last without a bound, and the sum.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dyorc.engine.estimators import Histogram
from dyorc.telemetry.metrics.catalogue import BY_NAME
from dyorc.telemetry.metrics.metric import Combine, Metric, MetricKind

Labels: TypeAlias = tuple[str, ...]
Value: TypeAlias = float | list[float]


class Readings:
    """Values by metric and labels. Plain, for one thread.

    Args:
        only_counted: Whether gauges are left out, because the process may end before the readings are used.

    Attributes:
        only_counted: The same.
    """

    def __init__(self, *, only_counted: bool = False) -> None:
        self.only_counted = only_counted
        self._values: dict[str, dict[Labels, Value]] = {}

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Adds a value of a counter or gauge. Of two with the same labels, the sum or the larger is kept, as the metric says."""
        self._take(metric, labels, value)

    def add_histogram(self, metric: Metric, histogram: Histogram, *labels: str, scale: float = 1.0) -> None:
        """Adds a histogram.

        Args:
            scale: By which its sum is multiplied to be in the metric's unit.
        """
        self._take(metric, labels, [*histogram.counts, histogram.total * scale])

    def of(self, metric: Metric) -> Mapping[Labels, Value]:
        """Returns a metric's values."""
        return self._values.get(metric.name, {})

    def merge(self, others: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        """Adds the readings of another process, as its `as_values` returned them."""
        for name, series in others.items():
            metric = BY_NAME[name]
            for labels, value in series:
                self._take(metric, tuple(labels), value)

    def as_values(self) -> dict[str, list[list[Any]]]:
        """Returns all of them as plain values."""
        return {name: [[list(labels), value] for labels, value in series.items()] for name, series in self._values.items()}

    def _take(self, metric: Metric, labels: Labels, value: Value) -> None:
        if len(labels) != len(metric.labels):
            raise ValueError(f"metric {metric.name} got the labels {labels}, expected values of {metric.labels}")
        if self.only_counted and metric.kind is MetricKind.GAUGE:
            return
        series = self._values.setdefault(metric.name, {})
        known = series.get(labels)
        series[labels] = value if known is None else _combine(metric, known, value)


def _combine(metric: Metric, value: Value, other: Value) -> Value:
    if isinstance(value, list) and isinstance(other, list):
        return [a + b for a, b in zip(value, other, strict=True)]
    if isinstance(value, list) or isinstance(other, list):
        raise ValueError(f"metric {metric.name} is a histogram in one process and a number in another")
    return max(value, other) if metric.combine is Combine.MAX else value + other


Source: TypeAlias = Callable[[Readings], None]
"""Adds what one part of the server has counted. Called on the event loop for every scrape, and every second in a cell."""
