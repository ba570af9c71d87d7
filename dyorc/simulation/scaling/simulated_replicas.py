"""One program's simulated replicas: they start, load, are parked and end as a policy decides, and each step takes its time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dyorc.engine.events import Event, ReplicaLeft, ReplicasWanted
from dyorc.errors import InternalError
from dyorc.scaling.model import Bounds, DesiredReplicas, ReplicaCounts

if TYPE_CHECKING:
    from dyorc.simulation.world import World
from bisect import bisect_right
from collections import Counter
from enum import Enum, auto

from dyorc.errors import InvalidInputError
from dyorc.scaling.model import LeadTimes

_NS_PER_S = 1_000_000_000


class State(Enum):
    """Of a replica that is not cold. `STARTING` ones will be warm, `STARTING_PARKED` ones will be parked."""

    STARTING = auto()
    WARMING = auto()
    WARM = auto()
    STARTING_PARKED = auto()
    PARKED = auto()


HOLDS_DEVICE = frozenset({State.STARTING, State.WARMING, State.WARM})
"""What counts as warm in replica-seconds: everything that has its processors and devices, or waits for nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """How long a replica takes from one state to another.

    The defaults are what a second replica of a small CPU program takes on two cores with Ray Serve; nearly all of it is imports.
    """

    cold_to_warm_s: float = 3.0
    cold_to_parked_s: float = 2.5
    parked_to_warm_s: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.parked_to_warm_s <= self.cold_to_warm_s or not 0 < self.cold_to_parked_s <= self.cold_to_warm_s:
            raise InvalidInputError(
                f"a replica takes {self.cold_to_warm_s} s to be warm, {self.cold_to_parked_s} s to be parked and"
                f" {self.parked_to_warm_s} s from parked to warm; expected times above 0, the first at least the others"
            )

    @property
    def lead(self) -> LeadTimes:
        """The same, as the policies see it."""
        return LeadTimes(from_parked_s=self.parked_to_warm_s, from_cold_s=self.cold_to_warm_s)


class Timeline:
    """How many replicas were in which state, over time.

    Args:
        from_ns: Seconds before this are not counted.
        to_ns: Nor seconds after this.
    """

    def __init__(self, from_ns: int, to_ns: int) -> None:
        self.now = Counter[tuple[str, State]]()
        self.spent_ns = Counter[tuple[str, State]]()
        self._from_ns, self._to_ns = from_ns, to_ns
        self._last_ns = from_ns
        self._times_ns: list[int] = []
        self._totals: list[tuple[int, int]] = []

    def moved(self, program: str, before: State | None, after: State | None, now_ns: int) -> None:
        """Notes that a replica goes from one state to another; None is cold."""
        self.advance(now_ns)
        if before is not None:
            self.now[program, before] -= 1
        if after is not None:
            self.now[program, after] += 1
        num_warm = sum(number for (_, state), number in self.now.items() if state in HOLDS_DEVICE)
        self._times_ns.append(now_ns)
        self._totals.append((num_warm, self.now.total() - num_warm))

    def advance(self, now_ns: int) -> None:
        """Counts the time up to now."""
        until_ns = min(now_ns, self._to_ns)
        if until_ns > self._last_ns:
            for key, number in self.now.items():
                self.spent_ns[key] += number * (until_ns - self._last_ns)
            self._last_ns = until_ns

    def seconds(self, *, warm: bool) -> float:
        """Returns how many seconds all replicas were warm or on the way there; or parked, or on the way there."""
        return sum(spent for (_, state), spent in self.spent_ns.items() if (state in HOLDS_DEVICE) is warm) / 1e9

    def totals_at(self, at_ns: int) -> tuple[int, int]:
        """Returns how many replicas were warm and how many parked, over all programs, each with those on the way there."""
        position = bisect_right(self._times_ns, at_ns)
        return self._totals[position - 1] if position else (0, 0)


@dataclass(slots=True, eq=False)
class _Replica:
    """A process. `step_ns` is when the step it is in is over."""

    replica_id: str
    state: State
    step_ns: int = 0


class Replicas:
    """Applies decisions for one program.

    Attributes:
        events: Events for the engine. The caller that passes them on removes them.
        num_turns: How often the desired number changed its direction.
    """

    def __init__(self, program: str, bounds: Bounds, times: StartTimes, timeline: Timeline, world: "World") -> None:
        self.program = program
        self.bounds = bounds
        self.events: list[Event] = []
        self.num_turns = 0
        self._times = times
        self._timeline = timeline
        self._world = world
        self._all: dict[str, _Replica] = {}
        self._num_made = 0
        self._num_warm = self._num_parked = 0
        self._direction = 0

    @property
    def counts(self) -> ReplicaCounts:
        """The replicas by state."""
        return ReplicaCounts(
            warm=len(self._in(State.WARM)),
            warming=len(self._in(State.WARMING)),
            parked=len(self._in(State.PARKED)),
            starting=len(self._in(State.STARTING)) + len(self._in(State.STARTING_PARKED)),
        )

    def begin(self, num_warm: int) -> None:
        """Adds the replicas that are warm from the start."""
        self._num_warm = num_warm
        for _ in range(num_warm):
            self._join(self._start(State.WARMING, 0.0))
        self.events.append(ReplicasWanted(self.program, num_warm, self._times.cold_to_warm_s))

    def want(self, desired: DesiredReplicas) -> None:
        """Sets how many there should be from now on.

        Raises:
            InternalError: If the desired numbers are not within the program's bounds.
        """
        bounds = self.bounds
        num_processes = desired.num_warm + desired.num_parked
        if not bounds.min_warm <= desired.num_warm <= num_processes <= bounds.max_replicas:
            raise InternalError(
                f"the policy wants {desired.num_warm} warm and {desired.num_parked} parked replicas of {self.program!r},"
                f" expected at least {bounds.min_warm} warm and at most {bounds.max_replicas} in all"
            )
        if desired.num_warm != self._num_warm:
            direction = 1 if desired.num_warm > self._num_warm else -1
            self.num_turns += direction == -self._direction
            self._direction = direction
            self.events.append(ReplicasWanted(self.program, desired.num_warm, self._times.cold_to_warm_s))
        self._num_warm, self._num_parked = desired.num_warm, desired.num_parked
        self._settle()

    def parked(self, replica_id: str) -> None:
        """Parks a replica that the engine has released, or ends its process if no more parked ones are wanted."""
        self._move(self._all[replica_id], State.PARKED)
        self._settle()

    def _settle(self) -> None:
        """Starts missing replicas and ends surplus ones. Warm replicas stay until the engine releases them."""
        coming = [*self._in(State.WARM), *self._in(State.WARMING), *self._in(State.STARTING)]
        for _ in range(self._num_warm - len(coming)):
            self._add_warm()
        for replica in coming[max(self._num_warm, len(self._in(State.WARM))) :]:
            is_starting = replica.state is State.STARTING
            self._step(replica, State.STARTING_PARKED, replica.step_ns) if is_starting else self._move(replica, State.PARKED)
        spare = [*self._in(State.PARKED), *self._in(State.STARTING_PARKED)]
        for _ in range(self._num_parked - len(spare)):
            self._start(State.STARTING_PARKED, self._times.cold_to_parked_s)
        for replica in spare[self._num_parked :]:
            self._end(replica)

    def _add_warm(self) -> None:
        """Warms one more replica: a parked one, else one that is about to be parked, else a new one."""
        if parked := self._in(State.PARKED):
            self._step(parked[0], State.WARMING, self._world.now_ns + round(self._times.parked_to_warm_s * _NS_PER_S))
        elif starting := self._in(State.STARTING_PARKED):
            longer_s = self._times.cold_to_warm_s - self._times.cold_to_parked_s
            self._step(starting[0], State.STARTING, starting[0].step_ns + round(longer_s * _NS_PER_S))
        else:
            self._start(State.STARTING, self._times.cold_to_warm_s)

    def _start(self, state: State, seconds: float) -> _Replica:
        self._num_made += 1
        replica = self._all[f"{self.program}#{self._num_made}"] = _Replica(f"{self.program}#{self._num_made}", state)
        self._timeline.moved(self.program, None, state, self._world.now_ns)
        if seconds:
            self._step(replica, state, self._world.now_ns + round(seconds * _NS_PER_S))
        return replica

    def _step(self, replica: _Replica, state: State, until_ns: int) -> None:
        self._move(replica, state)
        replica.step_ns = until_ns
        self._world.at(until_ns, partial(self._stepped, replica, until_ns))

    def _stepped(self, replica: _Replica, step_ns: int) -> Sequence[Event]:
        """Ends a step, unless the replica has begun another one since."""
        if replica.replica_id in self._all and replica.step_ns == step_ns:
            if replica.state is State.STARTING_PARKED:
                self._move(replica, State.PARKED)
            elif replica.state in (State.STARTING, State.WARMING):
                self._join(replica)
        events, self.events = self.events, []
        return events

    def _join(self, replica: _Replica) -> None:
        self._move(replica, State.WARM)
        self.events.append(self._world.join(replica.replica_id, self.program))

    def _end(self, replica: _Replica) -> None:
        del self._all[replica.replica_id]
        self._timeline.moved(self.program, replica.state, None, self._world.now_ns)
        self.events.append(ReplicaLeft(replica.replica_id, "not wanted"))

    def _move(self, replica: _Replica, state: State) -> None:
        if state is not replica.state:
            self._timeline.moved(self.program, replica.state, state, self._world.now_ns)
            replica.state = state
            replica.step_ns = 0

    def _in(self, state: State) -> list[_Replica]:
        return [replica for replica in self._all.values() if replica.state is state]
