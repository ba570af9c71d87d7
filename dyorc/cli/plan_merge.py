"""``dyorc plan merge``, and what ``show`` and ``run`` do with what it writes: jobs that take turns on the same devices."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer
from rich.console import Console
from rich.table import Column

from dyorc.cli.stacked_table import StackedTable
from dyorc.core.counts import count
from dyorc.errors import PlanError

if TYPE_CHECKING:
    from dyorc.planner.planned_module import CapturedModule
    from dyorc.planner.planners.crossover.merge import MergedJobs
    from dyorc.planner.runtime.side_by_side import JobRun, TrainingJob

_console = Console(soft_wrap=True, highlight=False)
DEFAULT_STEPS = 10
Batch = TypeVar("Batch")


def merge(
    plans: Annotated[list[Path], typer.Argument(metavar="PLAN...", help="Files that `dyorc plan` wrote, of one job each.")],
    cluster: Annotated[Path, typer.Option("--cluster", help="The cluster whose devices the jobs share: a TOML file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the merged plans are written.")],
) -> None:
    """Merges jobs that train on the same devices, so that one computes while another communicates; `run` then runs them all."""
    from dyorc.planner.cluster import load_cluster
    from dyorc.planner.plan.plan_file import read_plan
    from dyorc.planner.planned_module import program_of_plan
    from dyorc.planner.planners.crossover.merge import MergeCandidate, merge_jobs
    from dyorc.planner.planners.crossover.merged_plans_file import write_merged
    from dyorc.planner.whole_file import check_writable

    check_writable(output := output.absolute())
    where = load_cluster(cluster)
    pairs = [(path, read_plan(path)) for path in plans]
    if answers := [path.name for path, plan in pairs if plan.inference is not None]:
        raise PlanError(f"{answers[0]} is of a model that answers: only plans that train are merged")
    jobs = merge_jobs(
        [MergeCandidate(name=path.name, plan=plan, program=program_of_plan(plan, None)) for path, plan in pairs], where
    )
    write_merged(jobs, output)
    _console.print(f"{output}: {_gain(jobs)}")


def show_merged(path: Path) -> None:
    """Prints the phases of merged jobs, when each starts, and a picture of some periods."""
    from dyorc.planner.planners.crossover.merge import letter_of, rows_of
    from dyorc.planner.planners.crossover.merged_plans_file import read_merged

    merged = read_merged(path)
    _console.print(f"{count(len(merged.jobs), 'job')} on {count(merged.num_ranks, 'rank')}: {_gain(merged)}", "")
    grid = StackedTable("", "job", "phase", "needs", Column("ms", justify="right"), Column("starts at ms", justify="right"))
    for number, job in enumerate(merged.jobs):
        for index, (phase, start) in enumerate(zip(job.phases, job.starts, strict=True)):
            times = [f"{time_s * 1e3:,.4g}" for time_s in (phase.seconds, start * merged.unit_s)]
            grid.add_row(letter_of(number), job.name, str(index), phase.resource.name.lower(), *times)
    _console.print(grid, "")
    for resource, row in rows_of(merged):
        _console.print(f"{resource.name.lower():>8} |{row}| ...", markup=False)


def run_merged(path: Path, steps: int, *, is_unverified: bool) -> None:
    """Trains merged jobs side by side on processes of this machine; ends with 1 if one of them fails or learns something else.

    The loss of each step is compared with that of a plain loop of PyTorch on one device.
    """
    from contextlib import ExitStack

    from dyorc.planner.planned_module import captured_of_plan
    from dyorc.planner.planners.crossover.merged_plans_file import read_merged
    from dyorc.planner.program import sources_of
    from dyorc.planner.runtime import RankOptions, Ranks, Training
    from dyorc.planner.runtime.side_by_side import TrainingJob, run_side_by_side
    from dyorc.planner.runtime.training import check_proved

    merged = read_merged(path)
    jobs: list[TrainingJob] = []
    models = [captured_of_plan(each.plan, None) for each in merged.jobs]
    for each, model in zip(merged.jobs, models, strict=True):
        program = model.program
        check_proved(each.plan, program, allow_unverified=is_unverified)
        sources = sources_of(program, model.module, model.example.tensors)
        batch = partial(_same_batch, {name: sources[name] for name in program.inputs})
        training = Training(steps=steps, overlap=False)
        jobs.append(TrainingJob(plan=each.plan, program=program, sources=sources, make_batch=batch, training=training))
    options = RankOptions(num_ranks=merged.num_ranks)
    with ExitStack() as stack:
        groups = [stack.enter_context(Ranks(options)) for _ in jobs]
        runs = run_side_by_side(jobs, groups, merged.sharing)
    verdicts = [_verdict(model, job, run) for model, job, run in zip(models, jobs, runs, strict=True)]
    for each, run, verdict in zip(merged.jobs, runs, verdicts, strict=True):
        losses = f", loss {run.losses[0]:.6g} to {run.losses[-1]:.6g}" if run.losses else ""
        error = f"; {run.error}" if run.error else ""
        _console.print(f"{each.name}: {len(run.losses)} of {steps} steps{losses}{verdict.text}{error}", markup=False)
    if any(run.error for run in runs) or any(verdict.is_wrong for verdict in verdicts):
        raise typer.Exit(1)


class _Verdict(NamedTuple):
    text: str
    is_wrong: bool


def _verdict(model: "CapturedModule", job: "TrainingJob", run: "JobRun") -> _Verdict:
    """Whether the losses are those of one device."""
    from dyorc.planner.reference import first_wrong_step, losses_of

    name, num_parts = model.optimizer or (None, 1)
    if name == "adama":
        return _Verdict(", not compared: torch has no AdamA", is_wrong=False)
    optimizer = None if name is None else (name, num_parts)
    expected = losses_of(model.module, model.example, len(run.losses), optimizer, job.training.learning_rate)
    step = first_wrong_step(run.losses, expected)
    if step is None:
        return _Verdict(", each as on one device", is_wrong=False)
    return _Verdict(f"; the loss of step {step} is {run.losses[step]:.9g}; expected {expected[step]:.9g}", is_wrong=True)


def _same_batch(inputs: Batch, step: int) -> Batch:
    return inputs


def _gain(merged: "MergedJobs") -> str:
    bound = "no period is shorter" if merged.is_optimal else "a shorter period may exist"
    return (
        f"one step of each job in {merged.period_s * 1e3:.4g} ms, {merged.alone_s * 1e3:.4g} ms one after the other: "
        f"{merged.speedup:.2f} times as fast ({bound})"
    )
