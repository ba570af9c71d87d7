"""Draws docs/img/benchmarks.svg: the highest rate of each system within the SLO, relative to the best peer.

Run as ``python -m benchmarks.table.picture benchmarks/results/full/table.json -o docs/img/benchmarks.svg``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.table.records import ORACLE, OUR_MODES, Table, read_table
from benchmarks.table.tables import shown_name, systems_of
from loadgen.report.bars import BarSeries, bar_chart
from loadgen.report.scales import linear, logarithmic, short
from loadgen.report.style import ALONE

_NAME = "Highest rate within the SLO, relative to the best peer"
_LINEAR_UP_TO = 6.0
"""Above this ratio the axis becomes logarithmic; otherwise one bar would dwarf the others."""


def highest_picture(table: Table, *, is_alone: bool = False) -> str:
    """Returns an SVG picture with bars for each workload, where the best peer is 1. Empty if there are no rates.

    Args:
        is_alone: Whether the picture is a separate file and so brings its own colours.
    """
    rates = {(entry.workload, entry.system): entry.rps for entry in table.highest}
    best = {workload.name: _best_peer(table, workload.name) for workload in table.workloads}
    workloads = [name for name, rps in best.items() if rps > 0]
    cannot = {entry.system for entry in table.cannot}
    series = [
        BarSeries(
            name=shown_name(system),
            style=style,
            values=[_relative(rates.get((workload, system)), best[workload]) for workload in workloads],
            missing="–" if system in cannot else "",
        )
        for style, system in enumerate(systems_of(table))
    ]
    values = [value for entry in series for value in entry.values if value]
    if not values:
        return ""
    is_linear = max(values) <= _LINEAR_UP_TO
    return bar_chart(
        workloads,
        series,
        name=_NAME,
        y_name="best peer = 1",
        scale=linear(max(values)) if is_linear else logarithmic(min(*values, 0.1), max(values), label=lambda value: short(value)),
        reference=1.0,
        numbered=[shown_name(mode) for mode in OUR_MODES],
        css=ALONE if is_alone else "",
    )


def main(
    table: Annotated[Path, typer.Argument(help="The table to read.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The SVG file to write.")],
) -> None:
    """Draws the picture."""
    try:
        drawn = highest_picture(read_table(table), is_alone=True)
        if not drawn:
            raise ValueError(f"{table} holds no highest rates of peers")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(drawn + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


def _best_peer(table: Table, workload: str) -> float:
    peers = [entry.rps for entry in table.highest if entry.workload == workload and entry.system not in (*OUR_MODES, ORACLE)]
    return max(peers, default=0.0)


def _relative(rps: float | None, best: float) -> float | None:
    return None if rps is None else rps / best


if __name__ == "__main__":
    typer.run(main)
