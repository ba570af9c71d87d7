"""The picture of a comparison: latency against load, a line per policy."""

from collections.abc import Sequence
from pathlib import Path

from dyorc.errors import DefinitionError
from dyorc.simulation.compare import Row

_NUM_COLUMNS = 4
_MAX_FACTOR = 2.2
"""Panels end at this multiple of the best policy's highest p99."""


def draw_picture(rows: Sequence[Row], path: Path) -> None:
    """Draws the rows of `compare` into a file: a panel per workload, p50 as a line and p99 dashed.

    A policy far from the others, like one whose queues only grow, leaves the panel: otherwise it alone would be visible.

    Raises:
        DefinitionError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise DefinitionError("a picture needs matplotlib: pip install 'dyorc[simulation]'") from error

    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    num_columns = min(_NUM_COLUMNS, len(workloads))
    num_lines = -(-len(workloads) // num_columns)
    figure = Figure(figsize=(4.2 * num_columns, 3.4 * num_lines), layout="constrained")
    panels = figure.subplots(num_lines, num_columns, squeeze=False).ravel()
    for panel, workload in zip(panels, workloads, strict=False):
        by_policy = _by_policy(rows, workload)
        for at, chosen in enumerate(by_policy):
            loads = [row["load"] for row in chosen]
            panel.plot(loads, [row["p50_ms"] for row in chosen], f"C{at}o-", label=chosen[0]["policy"])
            panel.plot(loads, [row["p99_ms"] for row in chosen], f"C{at}x--")
        top_ms = _MAX_FACTOR * min(max(row["p99_ms"] for row in shown) for shown in by_policy)
        panel.set(title=workload, ylim=(0, top_ms), xlabel="load (rate / saturation rate)", ylabel="ms: p50 -, p99 - -")
        panel.grid(visible=True, alpha=0.3)
    for panel in panels[len(workloads) :]:
        panel.set_visible(False)
    panels[0].legend()
    figure.savefig(path, dpi=120)


def _by_policy(rows: Sequence[Row], workload: str) -> list[list[Row]]:
    """Returns a workload's rows, by policy."""
    own = [row for row in rows if row["workload"] == workload]
    return [[row for row in own if row["policy"] == policy] for policy in dict.fromkeys(row["policy"] for row in own)]
