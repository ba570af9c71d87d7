"""What a scaling decision is made of: programs as they are now, and the replicas they should have.

A replica is *cold* (no process), *parked* (its process is up and has imported everything, its device is free) or *warm* (weights
loaded, takes batches). On the way it is *starting* (its process has been asked for) or *warming* (it loads its weights).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits within which a program's replicas are scaled.

    Attributes:
        min_warm: Replicas that are always warm; 0 lets the program go cold.
        max_replicas: Most processes, warm and parked together.
        upscale_delay_s: How long more replicas must have been wanted before there are more.
        downscale_delay_s: How long fewer must have been wanted before one is parked.
        to_zero_delay_s: The same for the last one; None: as for the others.
        cold_delay_s: How long a replica stays parked before its process ends.
        target_calls: The user's limit of calls in flight and waiting for each warm replica; None: measured batch times decide.
        initial_warm: Replicas that are warm at the start; None: `min_warm`.
        upscaling_factor: Fraction of the missing replicas that is added at once; above 1, more than are missing.
        downscaling_factor: Fraction of the surplus that is parked at once.
    """

    min_warm: int = 1
    max_replicas: int = 1
    upscale_delay_s: float = 0.0
    downscale_delay_s: float = 10.0
    cold_delay_s: float = 120.0
    target_calls: float | None = None
    to_zero_delay_s: float | None = None
    initial_warm: int | None = None
    upscaling_factor: float = 1.0
    downscaling_factor: float = 1.0

    @property
    def num_at_start(self) -> int:
        """Replicas that are warm at the start."""
        return self.min_warm if self.initial_warm is None else self.initial_warm

    def clamp(self, number: int) -> int:
        """Returns the allowed number of replicas next to this one."""
        return min(max(number, self.min_warm, 0), max(self.max_replicas, 0))

    @property
    def is_fixed(self) -> bool:
        """Whether there is nothing to decide."""
        return self.min_warm >= self.max_replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a replica takes of the budget: processors and devices while it is warm or warming, memory while it has a process."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    warm_bytes: int = 0
    parked_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Speed:
    """How long a batch of n calls takes: ``base_s + per_call_s * n``, as measured."""

    base_s: float
    per_call_s: float
    max_batch_size: int

    def batch_s(self, num_calls: int) -> float:
        """Returns how long a batch takes."""
        return self.base_s + self.per_call_s * num_calls

    @property
    def max_rate(self) -> float:
        """Calls per second of one replica with full batches."""
        return self.max_batch_size / max(self.batch_s(self.max_batch_size), 1e-9)


@dataclass(frozen=True, slots=True)
class LeadTimes:
    """How long it takes until a replica takes batches, as measured."""

    from_parked_s: float
    from_cold_s: float

    def next_s(self, counts: "ReplicaCounts") -> float:
        """Returns how long it takes until one more replica takes batches."""
        return self.from_parked_s if counts.parked else self.from_cold_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    """A program's replicas, by state."""

    warm: int = 0
    warming: int = 0
    parked: int = 0
    starting: int = 0

    @property
    def num_processes(self) -> int:
        """Replicas that are not cold."""
        return self.warm + self.warming + self.parked + self.starting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLoad:
    """A program as it is now.

    Attributes:
        speed: None until batches have been measured.
        num_queued: Calls that are certain and wait.
        num_running: Calls in batches that have been sent.
        warm_on: How many of its replicas are warm or warming on each device. One that is not shared does not count.
        parked_on: How many are parked there.
        most_possible: The most replicas that the server can run, even if a person orders more; None if unlimited.
        group: The programs with which it shares its processes, which all get the same number; empty: it shares none.
    """

    program: str
    bounds: Bounds
    cost: Cost
    counts: ReplicaCounts
    lead: LeadTimes
    speed: Speed | None = None
    num_queued: int = 0
    num_running: int = 0
    warm_on: Counter[str] = field(default_factory=Counter[str])
    parked_on: Counter[str] = field(default_factory=Counter[str])
    most_possible: int | None = None
    group: str = ""

    @property
    def devices(self) -> set[str]:
        """The devices that its replicas are on."""
        return {*self.warm_on, *self.parked_on}


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    """How many replicas a program should have, and why. Warm and parked ones are different processes.

    Attributes:
        most_on: How many warm replicas may stay on the devices where others need room; the rest are parked first.
    """

    program: str
    num_warm: int
    num_parked: int
    reason: str
    most_on: Mapping[str, int] = field(default_factory=dict[str, int])


class Observer(Protocol):
    """Observes what requests do."""

    def arrived(self, request_id: int, workflow: str, now_ns: int) -> None:
        """A request came."""
        ...

    def called(self, request_id: int, program: str, now_ns: int) -> None:
        """A request called a program, for certain: a guess counts once it turns out to be needed."""
        ...

    def ended(self, request_id: int, now_ns: int) -> None:
        """A request ended, one way or another."""
        ...


class Policy(Protocol):
    """Decides how many replicas there should be."""

    def decide(self, loads: Sequence[ProgramLoad], now_ns: int) -> Sequence[DesiredReplicas]:
        """Returns the desired replicas of every program whose number should change."""
        ...
