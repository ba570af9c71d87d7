"""Writes `docs/reference/metrics.md`: `python -m dyorc.telemetry.metrics docs/reference/metrics.md`."""

import sys
from itertools import groupby
from pathlib import Path

from dyorc.telemetry.metrics.catalogue import CATALOGUE
from dyorc.telemetry.metrics.metric import Combine, Metric

_HEAD = """# Metrics

<!-- Made of dyorc/telemetry/metrics/catalogue.py by `make docs-metrics`; do not edit. -->

Every metric of `GET /metrics`. [How to scrape them, alerts and boards](operations.md#metrics-and-alerts). Six to begin with:

| question | metric |
|---|---|
| how many requests, how many fail? | `dyorc_requests_total` by `outcome` |
| how long do they take? | `dyorc_request_duration_seconds` |
| do calls wait? | `dyorc_queued_calls`, `dyorc_call_queue_seconds` |
| are batches full? | `dyorc_batch_size` |
| is guessing worth it? | `dyorc_device_wasted_seconds_total` beside `dyorc_device_useful_seconds_total` |
| is anything refused? | `dyorc_refused_requests_total`, `dyorc_shed_requests_total` |

The figures are the whole server's, whichever of its cells answers: values of several processes are added up, except where the
table says that the largest counts. A histogram `x` has the series `x_bucket`, `x_count` and `x_sum`.
"""
_NATIVE_HISTOGRAMS = """
## Native histograms

They have to wait: prometheus-client 0.26 can write samples that are native histograms, but only in the draft format OpenMetrics
2.0, its own histograms do not make any, and it does not write protobuf, in which Prometheus takes them.
"""


def page() -> str:
    """Returns the page."""
    parts = [_HEAD]
    for group, metrics in groupby(CATALOGUE, lambda metric: metric.group):
        parts.append(f"\n## {group}\n\n| name | kind | labels | |\n|---|---|---|---|\n")
        parts += map(_row, metrics)
    return "".join([*parts, _NATIVE_HISTOGRAMS])


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    largest = " The largest value of all processes." if metric.combine is Combine.MAX else ""
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help}{largest} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
