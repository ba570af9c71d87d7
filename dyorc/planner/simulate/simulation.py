"""The results of a simulation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Apply, Collective, Plan
from dyorc.planner.simulate.simulated_tasks import SimulatedTask


@dataclass(frozen=True, slots=True)
class Event:
    """Something that took time.

    Attributes:
        name: The node, or the kind of collective and what it makes.
        step: The index of the step in the plan.
        ranks: Who took part.
        is_communication: Whether they exchanged something.
        start_s: When it began.
        end_s: When it ended.
    """

    name: str
    step: int
    ranks: tuple[int, ...]
    is_communication: bool
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A simulated step of training.

    Attributes:
        plan: What was simulated.
        total_s: When the last rank was done.
        busy_s: For each rank, how long it computed.
        communication_s: For each rank, how long it communicated: the sum over its channels.
        peak_bytes: For each rank, the most memory that pieces took at one time.
        memory: For each rank, times at which that changed, and the bytes from then on.
        first_alike: For each rank, the first that does the same at the same time: itself, if none before it does.
        tasks: What was done, by ranks that are alike once.
        times: When each task began and ended.
    """

    plan: Plan
    total_s: float
    busy_s: tuple[float, ...]
    communication_s: tuple[float, ...]
    peak_bytes: tuple[int, ...]
    memory: tuple[tuple[tuple[float, int], ...], ...] = field(repr=False)
    first_alike: tuple[int, ...] = field(repr=False)
    tasks: tuple[SimulatedTask, ...] = field(repr=False)
    times: tuple[tuple[float, float], ...] = field(repr=False)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Everything that took time, in the order of the plan."""
        return tuple(
            Event(self._name(task), task.step, ranks, task.is_communication, start_s, end_s)
            for task, (start_s, end_s) in zip(self.tasks, self.times, strict=True)
            if end_s > start_s
            for ranks in (task.ranks, *task.others)
        )

    def as_values(self) -> dict[str, Any]:
        """Returns its figures, a list's items by rank, as values for JSON."""
        return {
            "total_s": self.total_s,
            "busy_s": list(self.busy_s),
            "communication_s": list(self.communication_s),
            "overlap_s": list(self.overlap_s),
            "peak_bytes": list(self.peak_bytes),
        }

    def _name(self, task: SimulatedTask) -> str:
        step = self.plan.steps[task.step]
        match step:
            case Apply():
                name = step.node
            case Collective():
                name = f"{step.kind} {self.plan.tensors[step.target].value}"
            case _:
                name = f"transfer {self.plan.tensors[step.target].value}"
        return name if step.part is None else f"{name} #{step.part}"

    @cached_property
    def overlap_s(self) -> tuple[float, ...]:
        """For each rank, how long it computed and communicated at the same time."""
        overlap_s = {rank: self._overlap_of(*spans) for rank, spans in self._spans.items()}
        return tuple(overlap_s.get(first, 0.0) for first in self.first_alike)

    @property
    def _spans(self) -> "dict[int, tuple[_Spans, _Spans]]":
        """When each rank computed and when it communicated, for the first of ranks that are alike."""
        firsts: dict[tuple[int, ...], frozenset[int]] = {}
        spans: dict[int, tuple[_Spans, _Spans]] = {}
        for task, (start_s, end_s) in zip(self.tasks, self.times, strict=True):
            if end_s > start_s:
                if task.ranks not in firsts:
                    firsts[task.ranks] = frozenset(self.first_alike[rank] for rank in task.ranks)
                for rank in firsts[task.ranks]:
                    spans.setdefault(rank, ([], []))[task.is_communication].append((start_s, end_s))
        return spans

    @staticmethod
    def _overlap_of(computed: "_Spans", communicated: "_Spans") -> float:
        computing, communicating = _joined(computed), _joined(communicated)
        total, other = 0.0, 0
        for start_s, end_s in computing:
            while other < len(communicating) and communicating[other][1] <= start_s:
                other += 1
            ahead = other
            while ahead < len(communicating) and communicating[ahead][0] < end_s:
                total += min(end_s, communicating[ahead][1]) - max(start_s, communicating[ahead][0])
                ahead += 1
        return total


def check_memory(simulation: Simulation, cluster: Cluster) -> None:
    """Checks that the devices have the memory that a plan needs.

    Raises:
        PlanError: Names each such rank, its device, what it needs and what it has.
    """
    over = [
        f"rank {rank} ({device.name} on {device.machine}) needs {peak:,} bytes and has {device.memory_bytes:,}"
        for rank, (peak, device) in enumerate(zip(simulation.peak_bytes, cluster.devices, strict=False))
        if peak > device.memory_bytes
    ]
    if over:
        raise PlanError(f"the plan needs more memory than there is: {'; '.join(over)}")


_Spans = list[tuple[float, float]]


def _joined(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for start_s, end_s in sorted(intervals):
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_s))
        else:
            joined.append((start_s, end_s))
    return joined
