"""Draws a simulated plan: devices as rows over time, memory over time, layouts on the graph, and which rank holds what of the
largest tensors.
"""

from math import prod
from pathlib import Path
from typing import Any

from dyorc.errors import PlanError
from dyorc.planner.plan.folded import folded
from dyorc.planner.plan.show import Holding, holdings_of
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate.graph_picture import HEIGHT, draw_graph
from dyorc.planner.simulate.simulation import Simulation

_COMPUTING = "#4878a8"
_COLORS = {
    "all_reduce": "#d65f5f", "all_gather": "#e8a33d", "reduce_scatter": "#b07aa1", "all_to_all": "#59a14f", "transfer": "#8c6d46",
}  # fmt: skip
_MAX_NAMED_SHARE = 0.04
"""Of the whole time, from which an event is wide enough for its name."""


def draw_picture(simulation: Simulation, program: TensorProgram, path: Path) -> None:
    """Draws into an SVG or PNG file.

    Raises:
        PlanError: Pictures of this kind are not drawn, matplotlib is not installed, or the program is another one.
    """
    if path.suffix not in (".svg", ".png"):
        raise PlanError(f"{path}: expected a name that ends in .svg or .png")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlanError("pictures need matplotlib: install dyorc[planners]") from error
    num_ranks, holdings = len(simulation.busy_s), holdings_of(simulation.plan)
    heights = [1 + 0.5 * num_ranks, 2.5, HEIGHT, 1 + 0.28 * len(holdings)]
    figure = Figure(figsize=(14, sum(heights)), layout="constrained")
    rows, memory, graph, layouts = figure.subplots(4, 1, height_ratios=heights)
    _draw_time(rows, simulation)
    _draw_memory(memory, simulation)
    draw_graph(graph, simulation.plan, folded(simulation.plan, program))
    _draw_layouts(layouts, holdings, num_ranks)
    figure.savefig(path)


def _draw_time(axes: Any, simulation: Simulation) -> None:
    """Each rank has a wide bar for what it computes, and below it a narrow one for what it communicates."""
    seen: dict[str, Any] = {}
    for event in simulation.events:
        kind = event.name.split()[0] if event.is_communication else "computation"
        low, height = (0.32, 0.16) if event.is_communication else (-0.3, 0.58)
        bars = [(event.start_s * 1e3, (event.end_s - event.start_s) * 1e3)]
        for rank in event.ranks:
            color = _COLORS.get(kind, "#777777") if event.is_communication else _COMPUTING
            seen[kind] = axes.broken_barh(bars, (rank + low, height), facecolors=color, edgecolors="white", linewidth=0.2)
            if event.end_s - event.start_s > _MAX_NAMED_SHARE * simulation.total_s and not event.is_communication:
                axes.text(
                    (event.start_s + event.end_s) * 500, rank, event.name, ha="center", va="center", fontsize=6, color="white"
                )
    axes.set_yticks(range(len(simulation.busy_s)), [f"rank {rank}" for rank in range(len(simulation.busy_s))])
    axes.set_xlim(0, max(simulation.total_s, 1e-12) * 1e3)
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title(f"one step, {simulation.total_s * 1e3:.4g} ms by the simulator; plan by {simulation.plan.provenance.planner}")
    if seen:
        axes.legend(seen.values(), seen.keys(), ncols=len(seen), fontsize=8, loc="upper right", bbox_to_anchor=(1, -0.08))


def _draw_memory(axes: Any, simulation: Simulation) -> None:
    for rank, history in enumerate(simulation.memory):
        times = [time_s * 1e3 for time_s, _ in history] + [simulation.total_s * 1e3]
        held = [num_bytes / 1e6 for _, num_bytes in history]
        axes.step(times, [*held, *held[-1:]] if held else [0.0], where="post", label=f"rank {rank}", linewidth=1)
    axes.set_xlim(0, max(simulation.total_s, 1e-12) * 1e3)
    axes.set_ylabel("MB")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, loc="upper right")


def _draw_layouts(axes: Any, holdings: tuple[Holding, ...], num_ranks: int) -> None:
    """A row for each tensor, a cell for each rank: the darker, the more of it the rank holds."""
    for row, holding in enumerate(holdings):
        for rank, region in enumerate(holding.regions):
            whole = max(prod(holding.shape), 1)
            share = 0.0 if region is None else prod(stop - start for start, stop in region) / whole
            axes.add_patch(_rectangle(rank - 0.48, row - 0.42, 0.96, 0.84, share))
            text = "nothing" if region is None else "all" if share == 1 else _region_text(region, holding.shape)
            axes.text(rank, row, text, ha="center", va="center", fontsize=6.5, color="white" if share > 0.5 else "black")
    axes.set_xlim(-0.5, num_ranks - 0.5)
    axes.set_ylim(len(holdings) - 0.5, -0.5)
    axes.set_xticks(range(num_ranks), [f"rank {rank}" for rank in range(num_ranks)])
    axes.set_yticks(range(len(holdings)), [f"{h.value} {list(h.shape)}" for h in holdings], fontsize=7)
    axes.set_title("what each rank holds of the largest tensors when the step begins", fontsize=9)


def _rectangle(x: float, y: float, width: float, height: float, share: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=_COMPUTING, alpha=0.08 + 0.92 * share, linewidth=0)


def _region_text(region: tuple[tuple[int, int], ...], shape: tuple[int, ...]) -> str:
    cuts = [":" if stop - start == extent else f"{start}:{stop}" for (start, stop), extent in zip(region, shape, strict=True)]
    return f"[{', '.join(cuts)}]"
