"""Trains several jobs on the same devices at once, each on its own ranks.

How one job goes changes only the time of the others.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from dyorc.errors import PlanError
from dyorc.planner.plan import Plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.runtime.job_turns import JobTurns, PhaseClaim
from dyorc.planner.runtime.ranks import Ranks
from dyorc.planner.runtime.training import Training, load_training, steps_of
from dyorc.system.owned_folder import owned_folder


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One of several jobs.

    Attributes:
        plan: What runs in each step.
        program: Of the plan.
        sources: Parameters, buffers and states to begin with, whole.
        make_batch: Returns the inputs of a step, by name; called from the job's own thread.
        training: How it is trained, from the beginning. Jobs that take turns do not communicate during their own computation.
    """

    plan: Plan
    program: TensorProgram
    sources: Mapping[str, torch.Tensor]
    make_batch: Callable[[int], Mapping[str, torch.Tensor]]
    training: Training


@dataclass(slots=True)
class JobRun:
    """How a job went.

    Attributes:
        losses: Of each step that ended.
        ended_s: When each step ended, in seconds after all jobs had been loaded.
        error: What ended it early, or None.
    """

    losses: list[float] = field(default_factory=list[float])
    ended_s: list[float] = field(default_factory=list[float])
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How jobs take turns.

    Attributes:
        claims: For each job, its phases in order.
        lease_s: How long a turn may take before the next job goes on.
    """

    claims: tuple[tuple[PhaseClaim, ...], ...]
    lease_s: float


def run_side_by_side(
    jobs: Sequence[TrainingJob],
    groups: Sequence[Ranks],
    sharing: Sharing | None,
    heard: Callable[[int, int], None] = lambda job, step: None,
) -> list[JobRun]:
    """Runs jobs to their ends, or to their errors.

    Args:
        jobs: What runs.
        groups: The ranks of each job, which have started. Those of a job that fails are ended.
        sharing: Whose turn it is when; None if all run freely.
        heard: Hears the job and the number of steps done whenever a step has ended. Called from the jobs' threads.

    Raises:
        PlanError: A job would go on from a checkpoint.
    """
    if any(job.training.resume for job in jobs):
        raise PlanError("jobs side by side train from the beginning: they cannot resume from checkpoints")
    runs = [JobRun() for _ in jobs]
    with owned_folder("dyorc-turns-") as folder:
        works: list[_Work] = []
        for number, (job, ranks, run) in enumerate(zip(jobs, groups, runs, strict=True)):
            works.append(_Work(job, ranks, run, lambda step, number=number: heard(number, step)))
            works[-1].load(_turns(sharing, folder, number, job))
        began_s = time.perf_counter()  # no turn comes before all have joined
        threads = [threading.Thread(target=work.train, args=[began_s], name="dyorc-job") for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return runs


def _turns(sharing: Sharing | None, folder: str, number: int, job: TrainingJob) -> JobTurns | None:
    if sharing is None:
        return None
    return JobTurns(folder=folder, job=number, claims=sharing.claims, num_steps=job.training.steps, lease_s=sharing.lease_s)


@dataclass(frozen=True)
class _Work:
    """One job on its ranks. Any error ends it, and nothing else: those of what the user wrote, too."""

    job: TrainingJob
    ranks: Ranks
    run: JobRun
    heard: Callable[[int], None]

    def load(self, turns: JobTurns | None) -> None:
        job = self.job
        try:
            load_training(self.ranks, job.plan, job.program, job.sources, job.training, turns)
        except Exception as error:
            self._fail(error)

    def train(self, began_s: float) -> None:
        job, run = self.job, self.run
        try:
            for ran in steps_of(self.ranks, job.program, job.make_batch, job.training, 0) if run.error is None else ():
                run.losses.append(float(ran.results[job.program.loss]))
                run.ended_s.append(time.perf_counter() - began_s)
                self.heard(len(run.losses))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.run.error = error
        self.ranks.stop(is_abrupt=True)  # or the others would wait for its turns
