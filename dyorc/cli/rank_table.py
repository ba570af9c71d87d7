"""The table of what each rank computes, holds and waits for; equal ranks are one row."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Column

from dyorc.cli.stacked_table import StackedTable
from dyorc.planner.plan.show import summary_of

if TYPE_CHECKING:
    from dyorc.planner.plan import Plan
    from dyorc.planner.simulate import Simulation

_MAX_ROWS = 8
"""With up to this many ranks, each has a separate row."""
_MAX_RUNS = 4
"""Of ranks in one row, how many runs are named."""


def rank_table(plan: "Plan", simulation: "Simulation | None") -> StackedTable:
    """Returns the table; of a simulated plan, with the times and the memory of each rank."""
    names = ["ranks" if plan.num_ranks > _MAX_ROWS else "rank", "operations", "Gflop", "MB at the start"]
    names += ["peak MB", "computes ms", "communicates ms", "both ms"] if simulation else []
    table = StackedTable(*(Column(name, justify="right") for name in names))
    ranks_of: dict[tuple[int | float, ...], list[int]] = {}
    for rank, figures in enumerate(_figures(plan, simulation)):
        ranks_of.setdefault(figures if plan.num_ranks > _MAX_ROWS else (rank, *figures), []).append(rank)
    for figures, ranks in ranks_of.items():
        num_operations, *others = figures if plan.num_ranks > _MAX_ROWS else figures[1:]
        table.add_row(ranks_text(ranks), f"{num_operations:,}", *(f"{figure:,.4g}" for figure in others))
    return table


def ranks_text(ranks: Sequence[int]) -> str:
    """Names ranks by their runs: `0 to 127, 128 ranks`.

    Args:
        ranks: In ascending order.
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs[:_MAX_RUNS]]
    texts += ["..."] if len(runs) > _MAX_RUNS else []
    return ", ".join([*texts, f"{len(ranks)} ranks"] if len(ranks) > 1 else texts)


def _figures(plan: "Plan", simulation: "Simulation | None") -> list[tuple[int | float, ...]]:
    ranks = summary_of(plan).ranks
    figures_of: list[tuple[int | float, ...]] = [
        (summary.num_operations, summary.flops / 1e9, summary.source_bytes / 1e6) for summary in ranks
    ]
    if simulation is None:
        return figures_of
    times = zip(simulation.busy_s, simulation.communication_s, simulation.overlap_s, strict=True)
    simulated = [
        (peak / 1e6, *(time_s * 1e3 for time_s in each)) for peak, each in zip(simulation.peak_bytes, times, strict=True)
    ]
    return [(*figures, *simulated[rank]) for rank, figures in enumerate(figures_of)]
