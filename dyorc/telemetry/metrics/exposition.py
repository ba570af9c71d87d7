"""Writes metrics as Prometheus reads them. The only file that knows Prometheus' client library.

Native histograms are left out: the library writes them in OpenMetrics 2.0 text only, which no Prometheus reads yet, and not in
the protobuf format, which is the one in which Prometheus takes them.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from dyorc.telemetry.metrics import catalogue, metric
from dyorc.telemetry.metrics.readings import Readings


def exposition(readings: Readings, accept: str) -> tuple[bytes, str]:
    """Returns a scrape's answer and its content type.

    Args:
        accept: The request's ``Accept`` header: it decides between Prometheus' text format and OpenMetrics.
    """
    encode, content_type = choose_encoder(accept)
    return encode(_Collected(readings)), content_type


class _Collected(Collector):
    """Shows readings as a registry shows its collectors'."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        """Yields all families, those without a value too."""
        for each in catalogue.CATALOGUE:
            yield _family(each, self._readings)


def _family(shown: metric.Metric, readings: Readings) -> Metric:
    name, text, labels, unit = shown.name, shown.help, shown.labels, shown.unit
    series = readings.of(shown)
    match shown.kind:
        case metric.MetricKind.COUNTER:
            # The library appends the unit to a name that does not end with it; a counter's ends with `_total`.
            counter = CounterMetricFamily(name.removesuffix("_total"), text, labels=labels, unit=unit)
            for values, value in series.items():
                counter.add_metric(values, _number(value))
            return counter
        case metric.MetricKind.GAUGE:
            gauge = GaugeMetricFamily(name, text, labels=labels, unit=unit)
            for values, value in series.items():
                gauge.add_metric(values, _number(value))
            return gauge
        case metric.MetricKind.HISTOGRAM:
            histogram = HistogramMetricFamily(name, text, labels=labels, unit=unit)
            bounds = [*(floatToGoString(bound) for bound in shown.bounds), "+Inf"]
            for values, value in series.items():
                *counts, total = _numbers(value)
                histogram.add_metric(values, list(zip(bounds, accumulate(counts), strict=True)), total)
            return histogram


def _number(value: float | Sequence[float]) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"a number was expected, a histogram came: {value}")
    return value


def _numbers(value: float | Sequence[float]) -> Sequence[float]:
    if isinstance(value, int | float):
        raise TypeError(f"a histogram was expected, a number came: {value}")
    return value
