"""The picture of a comparison: latency against load, a line per policy."""

from collections.abc import Sequence
from pathlib import Path

from dyorc.errors import DefinitionError
from dyorc.simulation.compare import Row

_NUM_COLUMNS = 4


def draw_picture(rows: Sequence[Row], path: Path) -> None:
    """Draws the rows of `compare` into a file: a panel per workload, p50 as a line and p99 dashed, both logarithmic.

    Raises:
        DefinitionError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise DefinitionError("a picture needs matplotlib: pip install 'dyorc[simulation]'") from error

    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    num_columns = min(_NUM_COLUMNS, len(workloads))
    num_lines = -(-len(workloads) // num_columns)
    figure = Figure(figsize=(4.2 * num_columns, 3.4 * num_lines), layout="constrained")
    panels = figure.subplots(num_lines, num_columns, squeeze=False).ravel()
    for panel, workload in zip(panels, workloads, strict=False):
        for at, policy in enumerate(policies):
            chosen = [row for row in rows if row["workload"] == workload and row["policy"] == policy]
            loads = [row["load"] for row in chosen]
            panel.plot(loads, [row["p50_ms"] for row in chosen], f"C{at}o-", label=policy)
            panel.plot(loads, [row["p99_ms"] for row in chosen], f"C{at}x--")
        panel.set(title=workload, yscale="log", xlabel="load (rate / saturation rate)", ylabel="ms: p50 -, p99 - -")
        panel.grid(visible=True, which="both", alpha=0.3)
    for panel in panels[len(workloads) :]:
        panel.set_visible(False)
    panels[0].legend()
    figure.savefig(path, dpi=120)
