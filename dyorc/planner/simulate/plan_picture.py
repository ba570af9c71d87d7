"""Draws a simulated plan: devices as rows over time, memory over time, layouts on the graph, and which rank holds what of the
largest tensors.

The graph has blocks of layers, forwards in one row and backwards in another, and on the lines between them the largest tensors,
each with how it is cut. Lengths are inches.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

from dyorc.errors import PlanError
from dyorc.planner.plan import Plan
from dyorc.planner.plan.folded import Block, Folded, LayerEdge, Shown, Side, fold
from dyorc.planner.plan.show import Holding, holdings_of
from dyorc.planner.program import Partial, Shard, TensorProgram
from dyorc.planner.simulate.simulation import Simulation
from dyorc.system import extras

_COMPUTING = "#4878a8"
_COLORS = {
    "all_reduce": "#d65f5f", "all_gather": "#e8a33d", "reduce_scatter": "#b07aa1", "all_to_all": "#59a14f", "transfer": "#8c6d46",
}  # fmt: skip
_MAX_NAMED_SHARE = 0.04
"""Of the whole time, above which an event is wide enough for its name."""


def draw_picture(simulation: Simulation, program: TensorProgram, path: Path) -> None:
    """Draws into an SVG or PNG file.

    Raises:
        MissingLibraryError: matplotlib is not installed.
        PlanError: Pictures of this kind are not drawn, or the program is another one.
    """
    if path.suffix not in (".svg", ".png"):
        raise PlanError(f"{path}: expected a name that ends in .svg or .png")
    extras.require("planner", "the picture of a plan")
    from matplotlib.figure import Figure

    num_ranks, holdings = len(simulation.busy_s), holdings_of(simulation.plan)
    heights = [1 + 0.5 * num_ranks, 2.5, HEIGHT, 1 + 0.28 * len(holdings)]
    figure = Figure(figsize=(14, sum(heights)), layout="constrained")
    rows, memory, graph, layouts = figure.subplots(4, 1, height_ratios=heights)
    _draw_time(rows, simulation)
    _draw_memory(memory, simulation)
    draw_graph(graph, simulation.plan, fold(simulation.plan, program))
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


HEIGHT = 5.9
_WIDTH = 13.2
_TOP, _FORWARD, _BACKWARD, _BOTTOM = 5.5, 3.05, 0.95, 0.3
_BOX_HEIGHT, _GLYPH, _LINE, _SMALL = 0.72, 0.17, 0.44, 6.2
_WHOLE, _CUT, _SUM = "#d9d9d9", "#9ecae1", "#f4b6a6"
_MAX_LONG_EDGES = 3
"""To others than neighbours: named below the graph, and only the largest."""
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.3}
"""Behind text that lines may cross."""
_NUMBERED = re.compile(r".*?\d+\.")


def draw_graph(axes: Any, plan: Plan, graph: Folded) -> None:
    """Draws into matplotlib's axes."""
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(0, HEIGHT)
    axes.axis("off")
    axes.set_title(
        "layouts on the graph: forwards above, backwards below; blue is cut, grey whole on each rank, red a sum", fontsize=9
    )
    drawing = _Drawing(axes, plan, len(graph.blocks))
    for index, block in enumerate(graph.blocks):
        drawing.block(index, block)
    for edge in graph.edges:
        if not _is_long(edge):
            drawing.edge(edge)
    drawing.long_edges(graph, [edge for edge in graph.edges if _is_long(edge)])


def _is_long(edge: LayerEdge) -> bool:
    (source, was_backward), (target, is_backward) = edge.source, edge.target
    return abs(target - source) > 1 or (was_backward != is_backward and source != target)


class _Drawing:
    def __init__(self, axes: Any, plan: Plan, num_blocks: int) -> None:
        self._axes = axes
        self._plan = plan
        self._column = _WIDTH / num_blocks
        self._box_width = min(0.68 * self._column, 1.6)

    def block(self, index: int, block: Block) -> None:
        x = self._x(index)
        self._box(x, _FORWARD, block.name, block.forward, "#eef3f8")
        if block.backward.num_operations:
            self._box(x, _BACKWARD, f"{block.name}, backwards", block.backward, "#f7f1ea")
        if not block.parameters:
            return
        low = _TOP - _LINE * (len(block.parameters) - 1)
        left = x - self._box_width / 2
        self._axes.plot([left + _GLYPH / 2] * 2, [_FORWARD + _BOX_HEIGHT / 2, low], color="#bbbbbb", linewidth=0.8, zorder=0)
        for row, shown in enumerate(block.parameters):
            self._tensor(left, _TOP - _LINE * row, shown)

    def edge(self, edge: LayerEdge) -> None:
        (source, was_backward), (target, _) = edge.source, edge.target
        if source == target:
            x = self._x(source)
            self._arrow((x, _FORWARD - _BOX_HEIGHT / 2), (x, _BACKWARD + _BOX_HEIGHT / 2))
            self._tensor(x - self._box_width / 2, _FORWARD - _BOX_HEIGHT / 2 - 0.25, edge.shown)
            return
        y, way = (_BACKWARD if was_backward else _FORWARD), 1 if target > source else -1
        start, end = self._x(source) + way * self._box_width / 2, self._x(target) - way * self._box_width / 2
        self._arrow((start, y), (end, y))
        self._tensor(min(start, end) - 0.25 * self._box_width, y + _BOX_HEIGHT / 2 + 0.48, edge.shown)

    def long_edges(self, graph: Folded, edges: Sequence[LayerEdge]) -> None:
        """Names the largest; lines would cross everything."""
        lines: list[str] = []
        for edge in edges[:_MAX_LONG_EDGES]:
            ends = [f"{graph.blocks[at].name}{', backwards' if back else ''}" for at, back in (edge.source, edge.target)]
            description = f"{_title(self._plan, edge.shown)}, {', '.join(_layouts(self._plan, edge.shown))}".replace("\n", " ")
            lines.append(f"{ends[0]} to {ends[1]}: {description}")
        rest = [f"and {len(edges) - len(lines)} more such ways"] if len(edges) > len(lines) else []
        text = "\n".join(["Not to a neighbour:", *lines, *rest])
        if edges:
            self._axes.text(0.05, _BOTTOM, text, fontsize=_SMALL, va="top", color="#555555")

    def _x(self, index: int) -> float:
        return (index + 0.5) * self._column

    def _box(self, x: float, y: float, name: str, side: Side, color: str) -> None:
        from matplotlib.patches import FancyBboxPatch

        corner = x - self._box_width / 2, y - _BOX_HEIGHT / 2
        style = "round,pad=0,rounding_size=0.06"
        box = FancyBboxPatch(
            corner, self._box_width, _BOX_HEIGHT, boxstyle=style, facecolor=color, edgecolor="#555555", linewidth=0.8
        )
        self._axes.add_patch(box)
        lines = [_short(name, 32), f"{side.num_operations} operations, {_ranks(side.ranks)}"]
        lines += [f"{kind} {_bytes(num_bytes)}" for kind, num_bytes in side.sent.items()][:3]
        self._axes.text(x, y, "\n".join(lines), fontsize=_SMALL, ha="center", va="center")

    def _arrow(self, start: tuple[float, float], end: tuple[float, float], curve: float = 0.0) -> None:
        style = {"arrowstyle": "-|>", "color": "#999999" if curve else "#555555", "linewidth": 0.7 if curve else 1.0}
        style |= {"connectionstyle": f"arc3,rad={curve}"}
        self._axes.annotate("", xy=end, xytext=start, arrowprops=style, zorder=0)

    def _tensor(self, x: float, y: float, shown: Shown) -> None:
        """A glyph for each layout, and its description."""
        for number, tensor in enumerate(shown.tensors):
            self._glyph(x, y - number * (_GLYPH + 0.05), tensor)
        text = "\n".join([_title(self._plan, shown), *_layouts(self._plan, shown)])
        self._axes.text(x + _GLYPH + 0.05, y + _GLYPH, text, fontsize=_SMALL, ha="left", va="top", linespacing=1.1, bbox=_PAPER)

    def _glyph(self, x: float, y: float, tensor: str) -> None:
        """A square, cut as the tensor: the first dimension downwards, the others across."""
        from matplotlib.patches import Rectangle

        mesh, layout = self._plan.mesh_of(tensor), self._plan.tensors[tensor].layout
        is_sum, shards = any(isinstance(p, Partial) for p in layout), [p for p in layout if isinstance(p, Shard)]
        color = _SUM if is_sum else _CUT if shards else _WHOLE
        self._axes.add_patch(Rectangle((x, y), _GLYPH, _GLYPH, facecolor=color, edgecolor="black", linewidth=0.6))
        for placement, axis in zip(layout, mesh.axes, strict=True):
            if isinstance(placement, Shard):
                style = {"color": "black", "linewidth": 0.6, "linestyle": ":" if axis.is_time else "-"}
                for at in _cuts(placement):
                    if placement.dim == 0:
                        self._axes.plot([x, x + _GLYPH], [y + _GLYPH * (1 - at)] * 2, **style)
                    else:
                        self._axes.plot([x + _GLYPH * at] * 2, [y, y + _GLYPH], **style)
        if is_sum:
            self._axes.text(x + _GLYPH / 2, y + _GLYPH / 2, "Σ", fontsize=6, ha="center", va="center_baseline")


def _cuts(placement: Shard) -> Iterator[float]:
    sizes = placement.sizes or ()
    for position in list(accumulate(sizes))[:-1][:8]:
        yield position / max(sum(sizes), 1)


def _title(plan: Plan, shown: Shown) -> str:
    shape = list(plan.values[shown.name].shape)
    others = f"\nand {shown.num_others} more, {_bytes(shown.num_bytes)}" if shown.num_others else ""
    return f"{_short(_NUMBERED.sub('', shown.name), 24)} {shape}{others}"


def _layouts(plan: Plan, shown: Shown) -> Iterator[str]:
    """Lines: one for each axis that cuts the tensor."""
    for number, tensor in enumerate(shown.tensors):
        lines = list(_cut_lines(plan, tensor)) or ["whole"]
        yield f"{'read as ' if number else ''}{lines[0]}"
        yield from lines[1:]


def _cut_lines(plan: Plan, tensor: str) -> Iterator[str]:
    for placement, axis in zip(plan.tensors[tensor].layout, plan.mesh_of(tensor).axes, strict=True):
        if isinstance(placement, Partial):
            yield f"{axis.name}: sum of {axis.size}"
        elif isinstance(placement, Shard):
            sizes = placement.sizes or ()
            how = f"in {axis.size}" if len(set(sizes)) == 1 or len(sizes) > 4 else ":".join(map(str, sizes))
            yield f"{axis.name}: dim {placement.dim} {how}"


def _short(name: str, max_characters: int) -> str:
    return name if len(name) <= max_characters else f"…{name[1 - max_characters :]}"


def _ranks(ranks: Sequence[int]) -> str:
    if not ranks:
        return "no rank"
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:4]))}"


def _bytes(num_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes} B"
