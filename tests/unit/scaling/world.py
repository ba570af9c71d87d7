"""A small world in which replicas take time to start: requests walk through programs, a policy decides, the clock is virtual."""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dyorc.scaling.model import Bounds, Cost, DesiredReplicas, LeadTimes, Policy, ProgramLoad, ReplicaCounts, Speed
from dyorc.scaling.traffic import Traffic

NS = 1_000_000_000


@dataclass(frozen=True)
class Kind:
    """A program of the world."""

    speed: Speed = field(default_factory=lambda: Speed(0.02, 0.001, 32))
    bounds: Bounds = field(default_factory=lambda: Bounds(min_warm=0, max_replicas=10))
    lead: LeadTimes = field(default_factory=lambda: LeadTimes(0.3, 3.0))
    cost: Cost = field(default_factory=Cost)


@dataclass
class _Program:
    kind: Kind
    queue: deque["_Request"] = field(default_factory=deque["_Request"])
    free: int = 0
    busy: int = 0
    warming: int = 0
    parked: int = 0
    starting: int = 0
    num_running: int = 0
    want: tuple[int, int] = (0, 0)

    @property
    def warm(self) -> int:
        return self.free + self.busy

    @property
    def counts(self) -> ReplicaCounts:
        return ReplicaCounts(warm=self.warm, warming=self.warming, parked=self.parked, starting=self.starting)


@dataclass
class _Request:
    id: int
    route: Sequence[str]
    came_ns: int
    at: int = 0


class World:
    """Runs requests against a policy.

    Attributes:
        took_s: How long each request took, by number.
        changes: What was desired, and when.
        held_s: Seconds of warm and warming replicas, by program.
    """

    def __init__(self, kinds: dict[str, Kind], traffic: Traffic, policy: Policy, interval_s: float = 0.5) -> None:
        self.programs = {name: _Program(kind) for name, kind in kinds.items()}
        self.took_s: dict[int, float] = {}
        self.changes: list[tuple[float, DesiredReplicas]] = []
        self.held_s = dict.fromkeys(kinds, 0.0)
        self._traffic, self._policy = traffic, policy
        self._interval_ns = int(interval_s * NS)
        self._events: list[tuple[int, int, str, object]] = []
        self._num_events = 0
        self.now_ns = 0

    def run(self, arrivals: Iterable[tuple[float, str, Sequence[str]]], until_s: float) -> None:
        """Lets requests (when, workflow, programs in order) arrive, until a time."""
        for number, (at_s, workflow, route) in enumerate(arrivals):
            self._at(int(at_s * NS), "arrive", (workflow, _Request(number, route, int(at_s * NS))))
        self._at(self.now_ns, "decide", None)
        while self._events and self._events[0][0] <= until_s * NS:
            at_ns, _, what, about = heapq.heappop(self._events)
            for name, program in self.programs.items():
                self.held_s[name] += (program.warm + program.warming) * (at_ns - self.now_ns) / NS
            self.now_ns = at_ns
            getattr(self, f"_{what}")(about)
            if self._traffic.is_urgent:
                self._traffic.is_urgent = False
                self._ask()

    def _at(self, at_ns: int, what: str, about: object) -> None:
        self._num_events += 1
        heapq.heappush(self._events, (at_ns, self._num_events, what, about))

    def _in(self, after_s: float, what: str, about: object) -> None:
        self._at(self.now_ns + int(after_s * NS), what, about)

    def _arrive(self, about: tuple[str, _Request]) -> None:
        workflow, request = about
        self._traffic.arrived(request.id, workflow, self.now_ns)
        self._step(request)

    def _step(self, request: _Request) -> None:
        if request.at == len(request.route):
            self._traffic.ended(request.id, self.now_ns)
            self.took_s[request.id] = (self.now_ns - request.came_ns) / NS
            return
        name = request.route[request.at]
        self._traffic.called(request.id, name, self.now_ns)
        self.programs[name].queue.append(request)
        self._feed(name)

    def _feed(self, name: str) -> None:
        program = self.programs[name]
        while program.queue and program.free:
            size = min(len(program.queue), program.kind.speed.max_batch_size)
            batch = [program.queue.popleft() for _ in range(size)]
            program.free, program.busy, program.num_running = program.free - 1, program.busy + 1, program.num_running + size
            self._in(program.kind.speed.batch_s(size), "done", (name, batch))

    def _done(self, about: tuple[str, list[_Request]]) -> None:
        name, batch = about
        program = self.programs[name]
        program.free, program.busy, program.num_running = program.free + 1, program.busy - 1, program.num_running - len(batch)
        self._settle(name)
        for request in batch:
            request.at += 1
            self._step(request)
        self._feed(name)

    def _decide(self, _: None) -> None:
        self._at(self.now_ns + self._interval_ns, "decide", None)
        self._ask()

    def _ask(self) -> None:
        loads = [
            ProgramLoad(
                program=name,
                bounds=program.kind.bounds,
                cost=program.kind.cost,
                counts=program.counts,
                lead=program.kind.lead,
                speed=program.kind.speed,
                num_queued=len(program.queue),
                num_running=program.num_running,
            )
            for name, program in self.programs.items()
        ]
        for desired in self._policy.decide(loads, self.now_ns):
            self.changes.append((self.now_ns / NS, desired))
            self.programs[desired.program].want = (desired.num_warm, desired.num_parked)
        for name in self.programs:
            self._settle(name)

    def _settle(self, name: str) -> None:
        program = self.programs[name]
        num_warm, num_parked = program.want
        surplus = min(max(program.warm + program.warming - num_warm, 0), program.free)
        program.free, program.parked = program.free - surplus, program.parked + surplus
        for _ in range(min(num_warm - program.warm - program.warming, program.parked)):
            program.parked, program.warming = program.parked - 1, program.warming + 1
            self._in(program.kind.lead.from_parked_s, "warmed", name)
        missing = num_warm + num_parked - program.counts.num_processes
        for _ in range(missing):
            program.starting += 1
            self._in(program.kind.lead.from_cold_s - program.kind.lead.from_parked_s, "started", name)
        program.parked = max(program.parked - max(-missing, 0), 0)

    def _started(self, name: str) -> None:
        self.programs[name].starting -= 1
        self.programs[name].parked += 1
        self._settle(name)

    def _warmed(self, name: str) -> None:
        self.programs[name].warming -= 1
        self.programs[name].free += 1
        self._settle(name)
        self._feed(name)


def percentile(numbers: Iterable[float], ratio: float) -> float:
    """Returns the number below which this fraction lies."""
    ordered = sorted(numbers)
    return ordered[min(math.ceil(ratio * len(ordered)), len(ordered)) - 1]
