"""The scaling loop in virtual time: asks a policy at its intervals, and applies its decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dyorc.engine.engine import Engine
from dyorc.engine.events import Event
from dyorc.errors import InternalError
from dyorc.scaling.model import Bounds, Cost, Observer, Policy, ProgramLoad, Speed
from dyorc.simulation.scaling.simulated_replicas import Replicas, StartTimes, Timeline
from dyorc.simulation.workload import Deployment
from dyorc.simulation.world import World

_NS_PER_S = 1_000_000_000
_PATIENCE_NS = 3600 * _NS_PER_S
"""This long after the last arrival, a request that waits is one that the policy has forgotten."""


class Urgency(Protocol):
    """Says that the policy should be asked at once."""

    is_urgent: bool


@dataclass(frozen=True, kw_only=True)
class SimulatedScaler:
    """A policy, and when it is asked.

    Attributes:
        interval_s: Time between two decisions.
        observer: Gets from the engine what requests do.
        urgency: May ask for a decision between two.
    """

    policy: Policy
    interval_s: float
    observer: Observer | None = None
    urgency: Urgency | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits for every policy, and how the replicas start.

    Attributes:
        times: How long replicas take from state to state.
        bounds: Of every program.
        num_first: Replicas of each program that are warm when the trace begins.
    """

    times: StartTimes = field(default_factory=StartTimes)
    bounds: Bounds = field(default_factory=lambda: Bounds(min_warm=0, max_replicas=8))
    num_first: int = 1


class ScalingLoop:
    """Scales a world's programs.

    Attributes:
        programs: The replicas, by program.
    """

    def __init__(
        self, scaler: SimulatedScaler, engine: Engine, deployments: Sequence[Deployment], limits: Limits, timeline: Timeline
    ) -> None:
        self.programs: dict[str, Replicas] = {}
        self._scaler = scaler
        self._engine = engine
        self._limits = limits
        self._timeline = timeline
        self._names = [deployment.program.name for deployment in deployments]
        self._world: World | None = None
        self.end_ns = 0
        """When the last request arrives."""

    def begin(self, world: World) -> Sequence[Event]:
        """Makes the first replicas."""
        self._world = world
        bounds, times = self._limits.bounds, self._limits.times
        for name in self._names:
            replicas = self.programs[name] = Replicas(name, bounds, times, self._timeline, world)
            replicas.begin(max(bounds.min_warm, min(self._limits.num_first, bounds.max_replicas)))
        world.at(0, self._tick)
        return self._take()

    def parked(self, replica_id: str) -> None:
        """Notes that the engine has let go of a replica."""
        self.programs[replica_id.rpartition("#")[0]].parked(replica_id)

    def turned(self) -> Sequence[Event]:
        """Asks the policy if something is urgent."""
        urgency = self._scaler.urgency
        if urgency is not None and urgency.is_urgent:
            urgency.is_urgent = False
            self._decide()
        return self._take()

    def _tick(self) -> Sequence[Event]:
        world = self._world
        assert world is not None
        if world.now_ns > self.end_ns + _PATIENCE_NS:
            raise InternalError(f"an hour after the last request, the policy leaves some unanswered; replicas: {self._counts()}")
        world.at(world.now_ns + round(self._scaler.interval_s * _NS_PER_S), self._tick)
        self._decide()
        return self._take()

    def _decide(self) -> None:
        world = self._world
        assert world is not None
        for desired in self._scaler.policy.decide([self._load(name) for name in self.programs], world.now_ns):
            self.programs[desired.program].want(desired)

    def _load(self, name: str) -> ProgramLoad:
        load = self._engine.scheduler.load(name)
        line = load.line
        return ProgramLoad(
            program=name,
            bounds=self._limits.bounds,
            cost=_COST,
            counts=self.programs[name].counts,
            lead=self._limits.times.lead,
            speed=None if line is None else Speed(line[0], line[1], load.max_size),
            num_queued=load.num_queued,
            num_running=load.num_running,
        )

    def _take(self) -> Sequence[Event]:
        events: list[Event] = []
        for replicas in self.programs.values():
            events += replicas.events
            replicas.events.clear()
        return events

    def _counts(self) -> Mapping[str, object]:
        return {name: replicas.counts for name, replicas in self.programs.items()}


_COST = Cost(num_cpus=1.0, warm_bytes=1 << 30, parked_bytes=1 << 28)
