"""Draws a paper's table: what is published beside what came out here, a panel for each figure of the paper."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dyorc.errors import PlanError
from dyorc.offline.reproduce.table import Row, Table

_NUMBER = re.compile(r"([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*(\D*)")
_PUBLISHED, _OURS = "#9aa5b1", "#4878a8"
_MAX_NAME = 96


def draw_table(table: Table, path: Path) -> bool:
    """Draws the rows that have two numbers above zero of one unit into an SVG file, the same for the same table.

    Returns:
        Whether there are any; nothing is written otherwise.

    Raises:
        PlanError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlanError("pictures need matplotlib: install dyorc[planners]") from error
    panels: dict[str, list[tuple[str, float, float]]] = {}
    for row in table.rows:
        if (numbers := _numbers(row)) is not None:
            panels.setdefault(row.figure, []).append((row.what, *numbers))
    if not panels:
        return False
    heights = [0.7 + 0.26 * len(bars) for bars in panels.values()]
    with mpl.rc_context({"svg.hashsalt": table.name}):
        figure = Figure(figsize=(12, sum(heights) + 0.6), layout="constrained")
        axes = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
        for panel, (name, bars) in zip(axes, panels.items(), strict=True):
            _draw(panel, name, bars)
        axes[0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=8)
        figure.suptitle(table.title, fontsize=11)
        figure.savefig(path, format="svg", metadata={"Date": None})
    return True


def _numbers(row: Row) -> tuple[float, float] | None:
    published, ours = (_NUMBER.fullmatch(text.strip()) for text in (row.published, row.ours))
    if not published or not ours or published[2] != ours[2]:
        return None
    found = tuple(float(each[1].replace(",", "")) for each in (published, ours))
    return (found[0], found[1]) if min(found) > 0 else None


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
