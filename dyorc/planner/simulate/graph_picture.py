"""Draws the graph of a plan: blocks of layers, forwards in one row and backwards in another, and on the lines between them the
largest tensors, each with how it is cut. Lengths are inches.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from dyorc.planner.plan import Plan
from dyorc.planner.plan.folded import Block, Folded, LayerEdge, Shown, Side
from dyorc.planner.program import Partial, Shard

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
        """A glyph for each layout, and what it is beside it."""
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
