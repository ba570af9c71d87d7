"""``dyorc plan merge``, and what ``show`` and ``run`` do with what it writes: jobs that take turns on the same devices."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Column

from dyorc.errors import PlanError
from dyorc.planned_module import module_of, program_of_plan, sources_of
from dyorc.whole_table import WholeTable

if TYPE_CHECKING:
    from dyorc.offline.planners.crossover.merge import Merged

_console = Console(soft_wrap=True, highlight=False)
DEFAULT_STEPS = 10
Batch = TypeVar("Batch")


def merge(
    plans: Annotated[list[Path], typer.Argument(metavar="PLAN...", help="Files that `dyorc plan` wrote, of one job each.")],
    cluster: Annotated[Path, typer.Option("--cluster", help="The cluster whose devices the jobs share: a TOML file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the merged plans are written.")],
) -> None:
    """Merges jobs that train on the same devices, so that one computes while another communicates; `run` then runs them all."""
    from dyorc.offline.cluster import load_cluster
    from dyorc.offline.plan.codec import read_plan
    from dyorc.offline.planners.crossover.file import write_merged
    from dyorc.offline.planners.crossover.merge import Candidate, merged
    from dyorc.offline.whole_file import check_writable

    check_writable(output)
    where = load_cluster(cluster)
    found = [(path, read_plan(path)) for path in plans]
    if answers := [path.name for path, plan in found if plan.inference is not None]:
        raise PlanError(f"{answers[0]} is of a model that answers: only plans that train are merged")
    jobs = merged([Candidate(name=path.name, plan=plan, program=program_of_plan(plan, None)) for path, plan in found], where)
    write_merged(jobs, output)
    _console.print(f"{output}: {_gain(jobs)}")


def show_merged(path: Path) -> None:
    """Prints the phases of merged jobs, when each starts, and a picture of some periods."""
    from dyorc.offline.planners.crossover.file import read_merged
    from dyorc.offline.planners.crossover.show import letter_of, rows_of

    found = read_merged(path)
    _console.print(f"{len(found.jobs)} jobs on {found.num_ranks} ranks: {_gain(found)}", "")
    grid = WholeTable("", "job", "phase", "needs", Column("ms", justify="right"), Column("starts at ms", justify="right"))
    for number, job in enumerate(found.jobs):
        for index, (phase, start) in enumerate(zip(job.phases, job.starts, strict=True)):
            times = [f"{time_s * 1e3:,.4g}" for time_s in (phase.seconds, start * found.unit_s)]
            grid.add_row(letter_of(number), job.name, str(index), phase.resource.name.lower(), *times)
    _console.print(grid, "")
    for resource, row in rows_of(found):
        _console.print(f"{resource.name.lower():>8} |{row}| ...", markup=False)


def run_merged(path: Path, steps: int, *, is_unverified: bool) -> None:
    """Trains merged jobs side by side on processes of this machine; ends with 1 if one of them fails."""
    from contextlib import ExitStack

    from dyorc.offline.planners.crossover.file import read_merged
    from dyorc.offline.runtime import RankOptions, Ranks, Training
    from dyorc.offline.runtime.running import check_proved
    from dyorc.offline.runtime.side_by_side import Job, run_side_by_side

    found = read_merged(path)
    jobs: list[Job] = []
    for each in found.jobs:
        program = program_of_plan(each.plan, None)
        check_proved(each.plan, program, allow_unverified=is_unverified)
        sources = sources_of(program, *module_of(each.plan.target))
        batch = partial(_same_batch, {name: sources[name] for name in program.inputs})
        training = Training(steps=steps, overlap=False)
        jobs.append(Job(plan=each.plan, program=program, sources=sources, make_batch=batch, training=training))
    options = RankOptions(num_ranks=found.num_ranks)
    with ExitStack() as stack:
        groups = [stack.enter_context(Ranks(options)) for _ in jobs]
        runs = run_side_by_side(jobs, groups, found.sharing)
    for each, run in zip(found.jobs, runs, strict=True):
        losses = f", loss {run.losses[0]:.6g} to {run.losses[-1]:.6g}" if run.losses else ""
        error = f"; {run.error}" if run.error else ""
        _console.print(f"{each.name}: {len(run.losses)} of {steps} steps{losses}{error}", markup=False)
    if any(run.error for run in runs):
        raise typer.Exit(1)


def _same_batch(inputs: Batch, step: int) -> Batch:
    return inputs


def _gain(merged: "Merged") -> str:
    bound = "no period is shorter" if merged.is_optimal else "a shorter period may exist"
    return (
        f"one step of each job in {merged.period_s * 1e3:.4g} ms, {merged.alone_s * 1e3:.4g} ms one after the other: "
        f"{merged.speedup:.2f} times as fast ({bound})"
    )
