"""Draws a paper's table: its chart, or else the published numbers next to ours, a panel for each figure of the paper."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.table import Line, Row, Table
from dyorc.system import extras

_NUMBER = re.compile(r"([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*(\D*)")
_PUBLISHED, _OURS = "#9aa5b1", "#4878a8"
_MAX_NAME = 96


def draw_table(table: Table, path: Path) -> bool:
    """Draws a table's lines, or else the rows that have two numbers above zero of one unit, into an SVG file.

    It is the same for the same table.

    Returns:
        Whether there is anything to draw; nothing is written otherwise.

    Raises:
        MissingLibraryError: matplotlib is not installed.
    """
    extras.require("planner", "a picture")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    bars: dict[str, list[tuple[str, float, float]]] = {}
    for row in table.rows:
        if (numbers := _numbers(row)) is not None:
            bars.setdefault(row.figure, []).append((row.what, *numbers))
    if not bars and not table.lines:
        return False
    with mpl.rc_context({"svg.hashsalt": table.name}):
        figure = Figure(layout="constrained")
        if table.lines:
            _chart(figure, table.lines)
        else:
            _comparison(figure, bars)
        figure.suptitle(table.title, fontsize=11)
        figure.savefig(path, format="svg", metadata={"Date": None})
    return True


def _chart(figure: Any, lines: Sequence[Line]) -> None:
    """A panel for each of the horizontal axes, with the runs' mean and, in a lighter shade, all that they span."""
    panels: dict[str, list[Line]] = {}
    for line in lines:
        panels.setdefault(line.panel, []).append(line)
    figure.set_size_inches(12, 4.6)
    for axes, (name, shown) in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True):
        for line in shown:
            (drawn,) = axes.plot(line.xs, line.means, linewidth=1.2, label=line.what)
            axes.fill_between(line.xs, line.lows, line.highs, color=drawn.get_color(), alpha=0.15, linewidth=0)
        axes.set_xscale("log")  # most is learned at the beginning
        axes.set_xlabel(name, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    first = figure.axes[0]
    first.set_ylabel(lines[0].height, fontsize=8)
    first.legend(frameon=False, fontsize=8)


def _comparison(figure: Any, panels: Mapping[str, Sequence[tuple[str, float, float]]]) -> None:
    heights = [0.7 + 0.26 * len(bars) for bars in panels.values()]
    figure.set_size_inches(12, sum(heights) + 0.6)
    axes = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for panel, (name, bars) in zip(axes, panels.items(), strict=True):
        _draw(panel, name, bars)
    axes[0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=8)


def _numbers(row: Row) -> tuple[float, float] | None:
    published, ours = (_NUMBER.fullmatch(text.strip()) for text in (row.published, row.ours))
    if not published or not ours or published[2] != ours[2]:
        return None
    numbers = tuple(float(each[1].replace(",", "")) for each in (published, ours))
    return (numbers[0], numbers[1]) if min(numbers) > 0 else None


def _draw(axes: Any, name: str, bars: Sequence[tuple[str, float, float]]) -> None:
    places = range(len(bars))
    axes.barh([place - 0.19 for place in places], [bar[1] for bar in bars], 0.36, color=_PUBLISHED, label="published")
    axes.barh([place + 0.19 for place in places], [bar[2] for bar in bars], 0.36, color=_OURS, label="here")
    names = [what if len(what) <= _MAX_NAME else what[: _MAX_NAME - 3] + "..." for what, _, _ in bars]
    axes.set_yticks(places, names, fontsize=7)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    values = [value for _, *both in bars for value in both]
    if max(values) > 20 * min(values):
        axes.set_xscale("log")
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(name, fontsize=8, loc="right")
    axes.spines[["top", "right"]].set_visible(False)
