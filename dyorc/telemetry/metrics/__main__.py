"""Writes `docs/reference/metrics.md`: `python -m dyorc.telemetry.metrics docs/reference/metrics.md`."""

import sys
from itertools import groupby
from pathlib import Path

from dyorc.telemetry.metrics.catalogue import CATALOGUE
from dyorc.telemetry.metrics.metric import Combine, Metric

_HEAD = """# Metrics

<!-- Made of dyorc/telemetry/metrics/catalogue.py by `make docs-metrics`; do not edit. -->

`GET /metrics` shows these for the whole server, whichever of its cells answers. [operations.md](operations.md#metrics-and-alerts)
says how to scrape them, and which alerts and boards there are. A histogram `x` has the series `x_bucket`, `x_count` and `x_sum`.
The values of several processes are added up, except where the table says that the largest counts. Native histograms have to
wait: prometheus-client 0.26 can write samples that are native histograms, but only in the draft format OpenMetrics 2.0, its own
histograms do not make any, and it does not write protobuf, in which Prometheus takes them.
"""


def page() -> str:
    """Returns the page."""
    parts = [_HEAD]
    for group, metrics in groupby(CATALOGUE, lambda metric: metric.group):
        parts.append(f"\n## {group}\n\n| name | kind | labels | |\n|---|---|---|---|\n")
        parts += map(_row, metrics)
    return "".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    largest = " The largest value of all processes." if metric.combine is Combine.MAX else ""
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help}{largest} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
