"""The phases of a plan: how long its ranks compute, then communicate, then compute again."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from dyorc.errors import PlanError
from dyorc.offline.cluster import Cluster
from dyorc.offline.plan import Plan
from dyorc.offline.program import TensorProgram
from dyorc.offline.simulate.tasks import tasks_of

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
    found = _runs(busy, communicates)
    least_s = _MIN_SHARE * sum(phase.seconds for phase in found)
    while len(found) > 1 and (shortest := min(found, key=lambda phase: phase.seconds)).seconds < least_s:
        found = _without(found, found.index(shortest))
    return (JobPhase(resource=found[0].resource, begins=0, seconds=found[0].seconds), *found[1:])


def _runs(busy: Mapping[int, Mapping[int, float]], communicates: set[int]) -> list[JobPhase]:
    """Runs of steps that need the same; each takes as long as its busiest rank."""
    found: list[JobPhase] = []
    total: dict[int, float] = {}
    for step in sorted(busy):
        resource = Resource.NETWORK if step in communicates else Resource.DEVICES
        if not found or found[-1].resource is not resource:
            total = {}
            found.append(JobPhase(resource=resource, begins=step, seconds=0.0))
        for rank, seconds in busy[step].items():
            total[rank] = total.get(rank, 0.0) + seconds
        found[-1] = JobPhase(resource=resource, begins=found[-1].begins, seconds=max(total.values()))
    return found


def _without(phases: list[JobPhase], index: int) -> list[JobPhase]:
    """Has the neighbours of a phase, which need the same, take it in."""
    first, last = max(index - 1, 0), min(index + 1, len(phases) - 1)
    resource = phases[first].resource if first < index else phases[last].resource
    joined = JobPhase(
        resource=resource, begins=phases[first].begins, seconds=sum(phase.seconds for phase in phases[first : last + 1])
    )
    return [*phases[:first], joined, *phases[last + 1 :]]
