"""The picture of a run: microseconds per hop against bytes, a line per tier. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.focused.transport.hop import format_bytes

Lines: TypeAlias = Mapping[str, Sequence[tuple[int, float]]]
"""For each tier, bytes and microseconds, ordered by bytes."""

# Okabe and Ito's colours, which colour-blind people can tell apart, one per medium; DyOrc's lines are solid, its peers' dashed.
_BLACK, _ORANGE, _SKY, _GREEN, _BLUE, _RED, _PINK = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
_OURS = {
    "message": (_ORANGE, "."),
    "in_place": (_BLACK, "o"),
    "inline": (_ORANGE, "s"),
    "shared_memory_view": (_GREEN, "o"),
    "shared_memory_again": (_GREEN, "s"),
    "shared_memory_empty": (_GREEN, "D"),
    "shared_memory_gather": (_GREEN, "^"),
    "zmq_tensors": (_BLUE, "D"),
    "zmq_tensors_curve": (_BLUE, "s"),
    "grpc_tensors": (_PINK, "v"),
}
_PEERS = {
    "memcpy": (_BLACK, ""),
    "ray_actor": (_RED, "x"),
    "ray_put_get": (_RED, "+"),
    "grpc": (_PINK, "1"),
    "pipe": (_SKY, "|"),
    "raw_zmq_ipc": (_BLUE, "3"),
    "raw_zmq_tcp": (_BLUE, "4"),
    "raw_socket": (_SKY, "_"),
}
_INK, _FAINT = "#333333", "#DDDDDD"
_LABEL_GAP = 0.036
"""The distance between two labels, as a fraction of the panel's height."""


def draw_picture(lines: Lines, path: Path) -> None:
    """Draws all tiers that were measured into a file; each line has its name at its right end."""
    figure = Figure(figsize=(11, 6.6), facecolor="white")
    panel = figure.subplots(gridspec_kw={"left": 0.085, "right": 0.81, "bottom": 0.085, "top": 0.92})
    _dress(panel, sorted({num_bytes for points in lines.values() for num_bytes, _ in points}))
    for tier, points in lines.items():
        color, marker = (_OURS | _PEERS)[tier]
        panel.plot(
            *zip(*points, strict=True),
            color=color,
            marker=marker,
            markersize=6 if tier in _OURS else 7,
            linewidth=2.2 if tier in _OURS else 1.2,
            linestyle="-" if tier in _OURS else (0, (4, 2)),
        )
    _label(panel, lines)
    figure.savefig(path, dpi=150)


def _dress(panel: Axes, sizes: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.xaxis.set_major_locator(FixedLocator(sizes))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(_bytes_tick))
    panel.yaxis.set_major_formatter(FuncFormatter(_us_tick))
    panel.grid(visible=True, axis="y", color=_FAINT, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(_INK)
    panel.tick_params(colors=_INK, labelsize=10)
    title = "From one process to another: time per tensor by size (solid: DyOrc, dashed: others)"
    panel.set_title(title, loc="left", color=_INK, fontsize=12, pad=12)
    panel.set_xlabel("tensor", color=_INK)
    panel.set_ylabel("time per hop, reply included", color=_INK)


def _label(panel: Axes, lines: Lines) -> None:
    """Draws names beside the lines' ends, moved apart where the ends are close together."""
    bottom, top = np.log10(panel.get_ylim())
    ends = sorted(((np.log10(points[-1][1]) - bottom) / (top - bottom), tier) for tier, points in lines.items())
    heights = _apart([height for height, _ in ends])
    for (_, tier), height in zip(ends, heights, strict=True):
        color = (_OURS | _PEERS)[tier][0]
        panel.annotate(
            tier.replace("_", " "),
            xy=lines[tier][-1],
            xytext=(1.02, height),
            textcoords="axes fraction",
            va="center",
            fontsize=10,
            color=color,
            fontweight="bold" if tier in _OURS else "normal",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 5},
        )


def _apart(heights: Sequence[float]) -> list[float]:
    """Returns ascending heights, moved in groups so that neighbours keep their distance."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1]) - _top(groups[-2]) < _LABEL_GAP:
            last = groups.pop()
            groups[-1] += last
    return [_bottom(group) + at * _LABEL_GAP for group in groups for at in range(len(group))]


def _bottom(group: Sequence[float]) -> float:
    return sum(group) / len(group) - (len(group) - 1) * _LABEL_GAP / 2


def _top(group: Sequence[float]) -> float:
    return _bottom(group) + (len(group) - 1) * _LABEL_GAP


def _bytes_tick(value: float, _: int) -> str:
    return format_bytes(int(value))


def _us_tick(value: float, _: int) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} s"
    return f"{value / 1e3:g} ms" if value >= 1e3 else f"{value:g} \N{MICRO SIGN}s"
