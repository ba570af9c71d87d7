"""The phases of a plan: how long its ranks compute, then communicate, then compute again."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate.simulated_tasks import tasks_of

_MIN_SHARE = 0.02
"""The part of a step below which a phase is no phase of its own: turns cost time, too."""


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
