"""Compares two runs of the benchmark, or the rounds of one, by DyOrc's ratio to each peer, which is what the goals are about.

Run as ``python -m benchmarks.table.repeat A/table.json B/table.json``; with one table, it compares the first and last round, each
of which starts every server anew. Milliseconds may differ from one machine to the next; the ratios should not. The last line is
one JSON object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec import structs

from benchmarks.table.goals import FIGURES, cells_of, is_ours, is_saturated, our_cell
from benchmarks.table.records import OUR_MODES, Table, read_table
from loadgen.tables import align_columns

WITHIN = 0.10
HIGHEST = "highest rate"


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How well one figure agrees between two runs.

    Attributes:
        num_ratios: How many ratios of DyOrc to a peer both runs have.
        share_within: The fraction of them that differ by no more than `WITHIN`.
        median_difference, worst_difference: The larger ratio divided by the smaller, minus 1.
        worst: Where the difference is largest.
    """

    figure: str
    num_ratios: int
    share_within: float
    median_difference: float
    worst_difference: float
    worst: str


@dataclass(frozen=True, slots=True)
class _Ratio:
    where: str
    first: float
    second: float

    @property
    def difference(self) -> float:
        return max(self.first, self.second) / min(self.first, self.second) - 1


def agreements(first: Table, second: Table) -> list[Agreement]:
    """Returns how well p50, p99 and the highest rate agree; figures without a common ratio are left out."""
    before, after = ratios(first), ratios(second)
    rows: list[Agreement] = []
    for figure in (*FIGURES, HIGHEST):
        both = [_Ratio(where, before[figure][where], after[figure][where]) for where in before[figure] if where in after[figure]]
        if both:
            rows.append(_agreement(figure, both))
    return rows


def agreement_of_rounds(table: Table) -> list[Agreement]:
    """Returns how well the first and last round of a run agree; nothing if there was only one."""
    return agreements(_only_round(table, 0), _only_round(table, -1))


def ratios(table: Table) -> dict[str, dict[str, float]]:
    """Returns DyOrc's figure divided by each peer's, by figure and place; not where either is 0 or could not keep up."""
    by_figure: dict[str, dict[str, float]] = {figure: {} for figure in (*FIGURES, HIGHEST)}
    for cell in table.cells:
        mine = our_cell(cells_of(table, cell.workload, cell.load))
        if mine is None or is_ours(cell.system) or is_saturated(mine) or is_saturated(cell):
            continue
        for figure in FIGURES:
            _keep(by_figure[figure], f"{cell.workload}, {cell.load}, {cell.system}", getattr(mine, figure), getattr(cell, figure))
    rates: dict[str, float] = {}
    for entry in table.highest:
        if entry.system in OUR_MODES:
            rates[entry.workload] = max(entry.rps, rates.get(entry.workload, 0.0))
    for entry in table.highest:
        if not is_ours(entry.system) and entry.workload in rates:
            _keep(by_figure[HIGHEST], f"{entry.workload}, {entry.system}", rates[entry.workload], entry.rps)
    return by_figure


def agreement_rows(agreed: Sequence[Agreement]) -> list[Sequence[str]]:
    """Returns a head, then a row for each figure."""
    rows: list[Sequence[str]] = [("figure", "ratios", f"within {WITHIN:.0%}", "median", "worst", "where")]
    for entry in agreed:
        name = entry.figure.removesuffix("_ms")
        differences = (f"{entry.median_difference:.1%}", f"{entry.worst_difference:.1%}")
        rows.append((name, str(entry.num_ratios), f"{entry.share_within:.0%}", *differences, entry.worst))
    return rows


def main(
    first: Annotated[Path, typer.Argument(help="A table of the benchmark.")],
    second: Annotated[
        Path | None, typer.Argument(help="A second table. Without it, the rounds of the first are compared.")
    ] = None,
) -> None:
    """Prints how well two runs, or the rounds of one, agree."""
    try:
        agreed = agreements(read_table(first), read_table(second)) if second else agreement_of_rounds(read_table(first))
    except (OSError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(align_columns(agreement_rows(agreed)))
    said: dict[str, Any] = {"within": WITHIN, "figures": agreed}
    typer.echo(msgspec.json.encode(said).decode())


def _only_round(table: Table, index: int) -> Table:
    """Returns the table of one round, without highest rates, since those are searched only once."""
    of_rounds = [cell for cell in table.cells if len(cell.p50s_ms) > 1]
    cells = [structs.replace(cell, p50_ms=cell.p50s_ms[index], p99_ms=cell.p99s_ms[index]) for cell in of_rounds]
    return structs.replace(table, cells=cells, highest=[])


def _keep(kept: dict[str, float], where: str, ours: float, theirs: float) -> None:
    if ours > 0 and theirs > 0:
        kept[where] = ours / theirs


def _agreement(figure: str, both: Sequence[_Ratio]) -> Agreement:
    ordered = sorted(both, key=lambda ratio: ratio.difference)
    worst = ordered[-1]
    return Agreement(
        figure=figure,
        num_ratios=len(both),
        share_within=sum(ratio.difference <= WITHIN + 1e-9 for ratio in both) / len(both),
        median_difference=ordered[len(ordered) // 2].difference,
        worst_difference=worst.difference,
        worst=f"{worst.where}: {worst.first:.3g} and {worst.second:.3g}",
    )


if __name__ == "__main__":
    typer.run(main)
