"""Merges jobs: schedules the phases of their steps so that devices and network are in use as much as possible.

A plan comes apart into phases: its ranks compute, then communicate, then compute again. Each period has one step of each job. The
shortest period is found by the modulo scheduler, with two resources, the devices and the network, each for one job at a time.
From the schedule ranks keep only the order of turns, which is the same for all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from string import ascii_uppercase

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners.modulo.modulo_blocks import ModuloBlock, ModuloProblem
from dyorc.planner.planners.modulo.period_search import PeriodSearchLimits, shortest_period
from dyorc.planner.planners.modulo.timeline import PeriodSearchResult
from dyorc.planner.program import TensorProgram
from dyorc.planner.runtime.job_turns import PhaseClaim
from dyorc.planner.runtime.side_by_side import Sharing
from dyorc.planner.simulate import simulate
from dyorc.planner.simulate.simulated_tasks import tasks_of

_MIN_SHARE = 0.02
"""The part of a step below which a phase is joined with its neighbours: turns cost time, too."""


class Resource(IntEnum):
    """What jobs share."""

    DEVICES = 0
    NETWORK = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPhase:
    """Steps of a plan that follow each other and need the same.

    Attributes:
        resource: What they need.
        begins: The number of the first of them.
        seconds: How long they take.
    """

    resource: Resource
    begins: int
    seconds: float


def phases_of(plan: Plan, program: TensorProgram, cluster: Cluster) -> tuple[JobPhase, ...]:
    """Returns a plan's phases. What computes or communicates only for a moment belongs to the phase before or after it."""
    busy: dict[int, dict[int, float]] = {}  # of each step, the seconds of each rank
    communicates: set[int] = set()
    for task in tasks_of(plan, program, cluster, overlap=False).tasks:
        if task.duration_s:
            seconds = busy.setdefault(task.step, {})
            for rank in task.ranks:
                seconds[rank] = seconds.get(rank, 0.0) + task.duration_s
            if task.is_communication:
                communicates.add(task.step)
    if not busy:
        raise PlanError(f"a step of {program.name} takes no time on {cluster.name}")
    phases = _runs(busy, communicates)
    least_s = _MIN_SHARE * sum(phase.seconds for phase in phases)
    while len(phases) > 1 and (shortest := min(phases, key=lambda phase: phase.seconds)).seconds < least_s:
        phases = _without(phases, phases.index(shortest))
    return (JobPhase(resource=phases[0].resource, begins=0, seconds=phases[0].seconds), *phases[1:])


def _runs(busy: Mapping[int, Mapping[int, float]], communicates: set[int]) -> list[JobPhase]:
    """Runs of steps that need the same; each takes as long as its busiest rank."""
    runs: list[JobPhase] = []
    total: dict[int, float] = {}
    for step in sorted(busy):
        resource = Resource.NETWORK if step in communicates else Resource.DEVICES
        if not runs or runs[-1].resource is not resource:
            total = {}
            runs.append(JobPhase(resource=resource, begins=step, seconds=0.0))
        for rank, seconds in busy[step].items():
            total[rank] = total.get(rank, 0.0) + seconds
        runs[-1] = JobPhase(resource=resource, begins=runs[-1].begins, seconds=max(total.values()))
    return runs


def _without(phases: list[JobPhase], index: int) -> list[JobPhase]:
    """Merges a phase into its neighbours, which need the same resource."""
    first, last = max(index - 1, 0), min(index + 1, len(phases) - 1)
    resource = phases[first].resource if first < index else phases[last].resource
    joined = JobPhase(
        resource=resource, begins=phases[first].begins, seconds=sum(phase.seconds for phase in phases[first : last + 1])
    )
    return [*phases[:first], joined, *phases[last + 1 :]]


Spans = Sequence[tuple[Resource, int]]
"""What the phases of a job's step need one after another, and for how many units of time."""

_RESOLUTION = 1000
"""Units of time in the steps of all jobs together."""
_LEASE_PERIODS = 20
"""A turn that takes longer than so many periods is over: its job is stuck. A job that has ended is noticed at once."""
_MIN_LEASE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class MergeCandidate:
    """A job that is to be merged with others.

    Attributes:
        name: For people.
        plan: What runs in each of its steps.
        program: Of the plan.
    """

    name: str
    plan: Plan
    program: TensorProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedJob:
    """A job among others.

    Attributes:
        name: For people.
        plan: What runs in each of its steps.
        phases: Of a step.
        starts: When each phase of the first step starts, in units of time.
    """

    name: str
    plan: Plan
    phases: tuple[JobPhase, ...]
    starts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class MergedJobs:
    """Several jobs, merged.

    Attributes:
        jobs: In the order given.
        period: After how many units of time all jobs have done one more step.
        bound: A period that is proved not to be undercut.
        unit_s: How long a unit of time is.
    """

    jobs: tuple[MergedJob, ...]
    period: int
    bound: int
    unit_s: float

    @property
    def num_ranks(self) -> int:
        """How many ranks each job has."""
        return self.jobs[0].plan.num_ranks

    @property
    def period_s(self) -> float:
        """How long one step of all jobs takes, side by side."""
        return self.period * self.unit_s

    @property
    def alone_s(self) -> float:
        """How long one step of each job takes, one after the other."""
        return sum(phase.seconds for job in self.jobs for phase in job.phases)

    @property
    def speedup(self) -> float:
        """How much faster they are side by side."""
        return self.alone_s / self.period_s

    @property
    def is_optimal(self) -> bool:
        """Whether no period is shorter."""
        return self.period == self.bound

    @cached_property
    def sharing(self) -> Sharing:
        """The order of turns."""
        claims = tuple(
            tuple(self._claim(job, number) for number in range(len(merged.phases))) for job, merged in enumerate(self.jobs)
        )
        return Sharing(claims=claims, lease_s=max(_MIN_LEASE_S, _LEASE_PERIODS * self.period_s))

    @cached_property
    def _order(self) -> Mapping[Resource, list[tuple[int, int, int]]]:
        """The turns of a period, by resource: when each begins, the job, and the number of its phase."""
        turns_of: dict[Resource, list[tuple[int, int, int]]] = {}
        for number, job in enumerate(self.jobs):
            for index, (phase, start) in enumerate(zip(job.phases, job.starts, strict=True)):
                turns_of.setdefault(phase.resource, []).append((start % self.period, number, index))
        return {resource: sorted(turns) for resource, turns in turns_of.items()}

    def _claim(self, job: int, index: int) -> PhaseClaim:
        phase, (delay, start) = self.jobs[job].phases[index], divmod(self.jobs[job].starts[index], self.period)
        place = self._order[phase.resource].index((start, job, index))
        return PhaseClaim(begins=phase.begins, resource=phase.resource, place=place, delay=delay)


def merge_jobs(candidates: Sequence[MergeCandidate], cluster: Cluster) -> MergedJobs:
    """Merges jobs.

    Args:
        candidates: At least two.
        cluster: What they share.

    Raises:
        PlanError: There is only one job, they do not need the same ranks, or together they need more memory than there is.
    """
    if len(candidates) < 2:
        raise PlanError(f"merging takes at least two plans, and this is {len(candidates)}")
    _check_ranks(candidates, cluster)
    _check_memory(candidates, cluster)
    phases = [phases_of(each.plan, each.program, cluster) for each in candidates]
    unit_s = sum(phase.seconds for each in phases for phase in each) / _RESOLUTION
    result = schedule_jobs([[(phase.resource, max(1, round(phase.seconds / unit_s))) for phase in each] for each in phases])
    starts = result.repetend.starts
    jobs = tuple(
        MergedJob(name=each.name, plan=each.plan, phases=mine, starts=tuple(starts[_name(job, i)] for i in range(len(mine))))
        for job, (each, mine) in enumerate(zip(candidates, phases, strict=True))
    )
    return MergedJobs(jobs=jobs, period=result.repetend.period, bound=result.bound, unit_s=unit_s)


def schedule_jobs(jobs: Sequence[Spans]) -> PeriodSearchResult:
    """Returns the schedule of least period in which each job does one step.

    A job's next step waits for its last: it needs the parameters that this has made.
    """
    blocks = [
        ModuloBlock(
            name=_name(job, number), span=span, resources=(resource.name.lower(),), after=(_name(job, number - 1),) * bool(number)
        )
        for job, spans in enumerate(jobs)
        for number, (resource, span) in enumerate(spans)
    ]
    carried = tuple((_name(job, len(spans) - 1), _name(job, 0)) for job, spans in enumerate(jobs))
    return shortest_period(ModuloProblem(tuple(blocks), carried=carried), PeriodSearchLimits(depth=3))


def _name(job: int, phase: int) -> str:
    return f"job {job}, phase {phase}"


def _check_ranks(candidates: Sequence[MergeCandidate], cluster: Cluster) -> None:
    needed = [f"{each.name} needs {each.plan.num_ranks}" for each in candidates]
    if len({each.plan.num_ranks for each in candidates}) > 1:
        raise PlanError(f"jobs that share devices have the same number of ranks: {', '.join(needed)}")
    if candidates[0].plan.num_ranks > cluster.num_ranks:
        raise PlanError(f"{cluster.name} has {cluster.num_ranks} ranks: {', '.join(needed)}")


def _check_memory(candidates: Sequence[MergeCandidate], cluster: Cluster) -> None:
    peaks = [simulate(each.plan, each.program, cluster, overlap=False).peak_bytes for each in candidates]
    over: list[str] = []
    for rank in range(candidates[0].plan.num_ranks):
        device, needed = cluster.devices[rank], [each[rank] for each in peaks]
        if sum(needed) > device.memory_bytes:
            each = " + ".join(f"{peak:,}" for peak in needed)
            over.append(f"rank {rank} ({device.name} on {device.machine}) needs {each} bytes and has {device.memory_bytes:,}")
    if over:
        raise PlanError(f"together the jobs need more memory than there is: {'; '.join(over)}")


def letter_of(job: int) -> str:
    """Returns the letter of a job."""
    return ascii_uppercase[job % len(ascii_uppercase)]


def rows_of(merged: MergedJobs, *, num_periods: int = 2, width: int = 40) -> Iterator[tuple[Resource, str]]:
    """Yields, for each resource, whose phases it is used for over some periods in the middle of the run; a dot is idle time.

    Args:
        merged: What is drawn.
        num_periods: How many periods.
        width: How many characters each period has.
    """
    for resource in Resource:
        cells = ["."] * width
        for number, job in enumerate(merged.jobs):
            for phase, start in zip(job.phases, job.starts, strict=True):
                if phase.resource is resource:
                    begin = start % merged.period * width / merged.period
                    end = begin + phase.seconds / merged.period_s * width
                    for cell in range(round(begin), max(round(end), round(begin) + 1)):
                        cells[cell % width] = letter_of(number)
        yield resource, "|".join(["".join(cells)] * num_periods)
