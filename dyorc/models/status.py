"""The status of each program and each of its replicas: for people, the health routes and the scaler."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from dyorc.authoring.program import Program
from dyorc.models.offers import ModelKey
from dyorc.scaling.model import LeadTimes, ReplicaCounts


class ProgramState(Enum):
    STARTING = "starting"
    """No process yet."""
    LOADING = "loading"
    """A process is up and loads the weights, or is about to."""
    READY = "ready"
    """At least one replica takes batches."""
    PARKED = "parked"
    """No replica should take batches now; some wait in processes without weights."""
    COLD = "cold"
    """No replica should take batches now, and there is no process."""
    STARVED = "starved"
    """A replica takes batches, but the last calls all failed for want of memory."""
    OFF = "off"
    """No replica takes batches, by order of a person (`dyorc scale`): requests that need the program fail."""
    FAILING = "failing"
    """The last attempt to load it failed, and no replica is left."""


BEST_FIRST = (
    ProgramState.READY,
    ProgramState.PARKED,
    ProgramState.COLD,
    ProgramState.STARVED,
    ProgramState.OFF,
    ProgramState.LOADING,
    ProgramState.STARTING,
    ProgramState.FAILING,
)
_AS_WANTED = BEST_FIRST[:5]
_NONE: Mapping[str, str] = {}


class ReplicaState(Enum):
    PARKED = "parked"
    """Its process is up and has imported everything; it holds no weights."""
    LOADING = "loading"
    """It loads its program, by order."""
    READY = "ready"
    """It takes batches."""
    PARKING = "parking"
    """It drops its program, by order."""


HOLDING = frozenset({ReplicaState.LOADING, ReplicaState.READY, ReplicaState.PARKING})
"""In these, a replica has weights in memory, or is about to."""


@dataclass
class ReplicaStatus:
    """One replica.

    Attributes:
        since_s: When its state began (Unix time).
        load_s: How long it last took to load its program.
        device: The device that it is on, if others may be on it too, by its node's name for it.
        is_leaving: Whether its process is about to end. It may take batches until another has taken its place.
        members: The processes that split its module, if it is split.
        process: The name of the process that it shares with replicas of other programs; empty: it shares none.
    """

    replica_id: str
    pid: int
    node: str
    state: ReplicaState
    since_s: float = field(default_factory=time.time)
    load_s: float = 0.0
    device: str = ""
    is_leaving: bool = False
    members: tuple[int, ...] = ()
    process: str = ""

    def enter(self, state: ReplicaState) -> None:
        """Changes its state."""
        if state is not self.state:
            self.state, self.since_s = state, time.time()

    @property
    def place(self) -> str:
        """Its device's name among those of all nodes; empty without one."""
        return f"{self.node}/{self.device}" if self.device else ""

    @classmethod
    def of_report(cls, replica_id: str, values: Mapping[str, Any]) -> "ReplicaStatus":
        """Returns the replica that `as_report` was called on, under another name."""
        state = ReplicaState(values["state"])
        members = tuple(values.get("members", ()))
        return cls(replica_id, values["pid"], values["node"], state, values["since_s"], values["load_s"], members=members)

    def as_report(self) -> dict[str, Any]:
        """Returns the status as plain values."""
        return {
            "state": self.state.value,
            "pid": self.pid,
            "node": self.node,
            "since_s": round(self.since_s, 3),
            "load_s": round(self.load_s, 3),
            **({"members": list(self.members)} if self.members else {}),
        }

    @property
    def pids(self) -> set[int]:
        """All its processes."""
        return {self.pid, *self.members}


@dataclass
class ProgramStatus:
    """One program's replicas.

    Attributes:
        num_wanted: Replicas that should take batches.
        num_processes: Processes that should be there, parked ones included.
        max_replicas: The most that the server can run, even if the program declares more; None if unlimited.
        waiting_bytes: Bytes of tensors that calls waiting for it will read, by the node that holds them, as last looked at.
        since_s: When the state began (monotonic).
        replicas: Those whose process has announced itself, by id; the order is that in which they entered their state.
        num_gpus: What a replica takes of a device while it holds the program.
        lead: How long it takes until a replica is ready, as last measured; None before the first.
        most_on: How many replicas may hold it on the devices where others need room.
        is_off: Whether a person has taken its replicas away (`dyorc scale`).
        is_starved: Whether the last calls all failed for want of memory.
        is_awaited: Whether the server is ready only with it. False for programs of a version that is not served yet.
        may_fail: Whether the server is ready without it if it cannot be loaded: for what the command line does not name.
        unreachable: Why its replicas cannot be reached now; empty: they can be.
    """

    name: str
    num_wanted: int
    num_processes: int = 0
    max_replicas: int | None = None
    waiting_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    state: ProgramState = ProgramState.STARTING
    since_s: float = field(default_factory=time.monotonic)
    replicas: dict[str, ReplicaStatus] = field(default_factory=dict[str, ReplicaStatus])
    error: str = ""
    num_gpus: float = 0.0
    lead: LeadTimes | None = None
    most_on: Mapping[str, int] = field(default_factory=dict[str, int])
    is_awaited: bool = True
    may_fail: bool = False
    is_off: bool = False
    is_starved: bool = False
    unreachable: str = ""

    @property
    def replica_pids(self) -> dict[str, int]:
        """The process ids of the replicas that take batches."""
        return {replica.replica_id: replica.pid for replica in self.replicas.values() if replica.state is ReplicaState.READY}

    @property
    def is_as_wanted(self) -> bool:
        """Whether a reachable replica takes batches, or none should. Readiness depends on this, not on `can_serve`, so that large
        tensors of one client do not make the server unready for others."""
        return not self.unreachable and self.state in _AS_WANTED

    @property
    def is_needed(self) -> bool:
        """Whether the server is ready only with it, now that it may have failed."""
        return self.is_awaited and not (self.may_fail and self.state is ProgramState.FAILING)

    @property
    def can_serve(self) -> bool:
        """Whether its calls run, now or once a replica that comes by itself is ready."""
        return self.is_as_wanted and self.state not in (ProgramState.OFF, ProgramState.STARVED)

    def of_state(self, state: ReplicaState) -> list[ReplicaStatus]:
        """Returns the replicas in a state that are not leaving, the longest in it first."""
        staying = (replica for replica in self.replicas.values() if replica.state is state and not replica.is_leaving)
        return sorted(staying, key=lambda replica: replica.since_s)

    def counts(self) -> ReplicaCounts:
        """Returns how many replicas that are not leaving are in each state."""
        states = [replica.state for replica in self.replicas.values() if not replica.is_leaving]
        return ReplicaCounts(
            warm=states.count(ReplicaState.READY),
            warming=states.count(ReplicaState.LOADING),
            parked=states.count(ReplicaState.PARKED) + states.count(ReplicaState.PARKING),
            starting=max(0, self.num_processes - len(states)),
        )

    def on_devices(self, *, are_warm: bool) -> Counter[str]:
        """Returns how many replicas are on each shared device: replicas that hold the program, or that do not."""
        return Counter(
            replica.place
            for replica in self.replicas.values()
            if replica.place and (replica.state is not ReplicaState.PARKED) is are_warm
        )

    def may_hold(self, place: str) -> bool:
        """Returns whether one more replica may hold it on a device that other programs need."""
        return place not in self.most_on or self.on_devices(are_warm=True)[place] < self.most_on[place]

    def misplaced(self) -> Sequence[str]:
        """Returns the replicas that hold it, or are about to, where others need room. Leaving replicas do not count."""
        holding = self.of_state(ReplicaState.READY) + self.of_state(ReplicaState.LOADING)
        return [
            replica.replica_id
            for place, most in self.most_on.items()
            for replica in sorted([holder for holder in holding if holder.place == place], key=_process)[most:]
        ]

    def as_report(self) -> dict[str, Any]:
        """Returns the status as plain values."""
        return {
            "state": self.state.value,
            "num_replicas": len(self.replica_pids),
            "num_wanted": self.num_wanted,
            "replicas": {name: replica.as_report() for name, replica in self.replicas.items()},
            "error": self.unreachable or self.error or None,
        }


def _process(replica: ReplicaStatus) -> str:
    """By which replicas that share processes are in the same order for all of their programs."""
    return replica.process


class StatusBoard:
    """Every program's status; signals changes.

    Args:
        stays_ready: Whether the server, once ready, stays ready as long as some program is: for a gateway, behind which groups
            of orchestrators come and go.

    Attributes:
        lacking: Missing things other than programs, as sentences by name.
        board_of: Returns the board with the programs of a model: another board if the model belongs to one of several groups.
    """

    def __init__(self, programs: Iterable[Program], *, stays_ready: bool = False) -> None:
        self.programs: dict[str, ProgramStatus] = {}
        self.lacking: dict[str, str] = {}
        self.board_of: Callable[[ModelKey], StatusBoard] = lambda model: self
        self._changed = asyncio.Event()
        self._stays_ready = stays_ready
        self._was_complete = False
        self._num_changes = 0
        self._changes: dict[str, int] = {}
        """The number of each program's last change; the newest is last."""
        for program in programs:
            self.add(program)

    @property
    def is_ready(self) -> bool:
        """Whether every program that should have a replica has one, and nothing else is missing."""
        if self._stays_ready and self._was_complete:
            return not self.programs or any(status.is_as_wanted for status in self.programs.values())
        return self._is_complete()

    def _is_complete(self) -> bool:
        # The last one first: while many programs load in order, it is the one to wait for.
        return not self.lacking and all(status.is_as_wanted for status in reversed(self.programs.values()) if status.is_needed)

    def changed_since(self, number: int) -> tuple[int, list[str]]:
        """Returns the number of changes so far, and the programs that have changed since there were `number`; 0: all of them."""
        names: list[str] = []
        for name in reversed(self._changes):
            if self._changes[name] <= number:
                break
            names.append(name)
        return self._num_changes, names[::-1]

    def _signal(self, program: str | None = None) -> None:
        if program is not None:
            self._num_changes += 1
            self._changes.pop(program, None)
            self._changes[program] = self._num_changes
        self._was_complete = self._was_complete or (self._stays_ready and self._is_complete())
        self._changed.set()

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to load some program failed."""
        return any(status.state is ProgramState.FAILING for status in self.programs.values() if status.is_needed)

    def add(self, program: Program, *, is_awaited: bool = True) -> None:
        """Adds a program that has no replica yet."""
        name, number = program.name, program.options.bounds.num_at_start
        self.programs[name] = ProgramStatus(name, number, number, num_gpus=program.options.num_gpus, is_awaited=is_awaited)
        self._signal(name)

    def remove(self, program: str) -> None:
        """Forgets a program."""
        del self.programs[program]
        self._changes.pop(program, None)
        self._signal()

    def twin(self) -> "StatusBoard":
        """Returns a board of the same programs in their first state."""
        board = StatusBoard(())
        board.programs = {name: ProgramStatus(name, status.num_wanted) for name, status in self.programs.items()}
        return board

    async def wait_for_change(self, timeout_s: float) -> None:
        """Waits until some program's status changes, at most `timeout_s`."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def lacks(self, name: str, sentence: str) -> None:
        """Records that something is missing; an empty sentence: no longer."""
        if sentence:
            self.lacking[name] = sentence
        else:
            self.lacking.pop(name, None)
        self._signal()

    def want(self, program: str, num_warm: int, num_parked: int = 0) -> None:
        """Sets how many replicas a program should have that take batches, and how many more without weights."""
        status = self.programs[program]
        status.num_wanted, status.num_processes = num_warm, num_warm + num_parked
        self._settle(status)

    def loading(self, program: str) -> None:
        """Records that a replica's process is up."""
        status = self.programs[program]
        if status.state in (ProgramState.STARTING, ProgramState.FAILING):
            self._set(status, ProgramState.LOADING)

    def enter(self, program: str, replica: ReplicaStatus) -> bool:
        """Records the state of a replica, which may be new. Returns whether that is a change."""
        status = self.programs[program]
        known = status.replicas.get(replica.replica_id)
        if known is not None and known.state is replica.state:
            return False
        status.replicas[replica.replica_id] = replica
        if replica.state is ReplicaState.READY and not status.is_starved:
            status.error = ""
        self._settle(status)
        return True

    def joined(
        self,
        program: str,
        replica_id: str,
        pid: int,
        node: str = "",
        load_s: float = 0.0,
        members: tuple[int, ...] = (),
        process: str = "",
    ) -> None:
        """Records that a replica is ready. Its other values stay."""
        known = self.programs[program].replicas.get(replica_id)
        if known is None:
            known = ReplicaStatus(replica_id, pid, node, ReplicaState.READY)
        now_s, node, process = time.time(), node or known.node, process or known.process
        ready = replace(
            known, pid=pid, node=node, state=ReplicaState.READY, since_s=now_s, load_s=load_s, members=members, process=process
        )
        self.enter(program, ready)

    def find(self, replica_id: str) -> tuple[ProgramStatus, ReplicaStatus] | None:
        """Returns a replica and its program; None if it is not known."""
        for status in self.programs.values():
            if replica_id in status.replicas:
                return status, status.replicas[replica_id]
        return None

    def move(self, status: ProgramStatus, replica: ReplicaStatus, state: ReplicaState) -> None:
        """Changes the state of a replica."""
        replica.enter(state)
        self._settle(status)

    def left(self, replica_id: str) -> None:
        """Removes a replica that is gone."""
        for status in self.programs.values():
            if status.replicas.pop(replica_id, None) is not None:
                self._settle(status)

    def load_failed(self, program: str, error: str) -> None:
        """Records that a replica could not load its program."""
        status = self.programs[program]
        status.error = error
        self._set(status, status.state if status.replica_pids else ProgramState.FAILING)

    def starve(self, program: str, error: str) -> None:
        """Records that the last calls of a program all failed for want of memory; without an error, that a call has run again."""
        status = self.programs.get(program)
        if status is not None and (error or status.is_starved):
            status.error, status.is_starved = error, bool(error)
            self._settle(status)

    def as_values(self) -> dict[str, Any]:
        """As plain values, by program, for `show`."""
        return {
            status.name: [
                status.state.value,
                status.num_wanted,
                {name: replica.as_report() for name, replica in status.replicas.items()},
                status.error,
            ]
            for status in self.programs.values()
        }

    def follow(self, other: "StatusBoard") -> None:
        """Takes over the programs of another board."""
        for name in self.programs.keys() - other.programs.keys():
            self.remove(name)
        for name, status in other.programs.items():
            mine = self.programs.setdefault(name, ProgramStatus(name, status.num_wanted))
            mine.is_awaited, mine.may_fail = status.is_awaited, status.may_fail

    def show(self, boards: Mapping[int, Mapping[str, Any]], pick: Callable[..., ProgramState]) -> None:
        """Shows the combined reports of several processes.

        Args:
            boards: `as_values` of each, by its number.
            pick: `min` for the best of their states, `max` for the worst.
        """
        for name, status in self.programs.items():
            reports = {number: board[name] for number, board in boards.items() if name in board}
            if not reports:
                continue
            states, nums_wanted, _, errors = zip(*reports.values(), strict=True)
            status.num_wanted = sum(nums_wanted)
            status.replicas = {
                f"{number}/{key}": ReplicaStatus.of_report(f"{number}/{key}", values)
                for number, (_, _, replicas, _) in reports.items()
                for key, values in replicas.items()
            }
            status.error = next(filter(None, errors), "")
            self._set(status, pick(map(ProgramState, states), key=BEST_FIRST.index))

    def lose(self, reason: str) -> None:
        """Records that no program can be reached, until `mirror` is called."""
        for status in self.programs.values():
            status.unreachable = reason
        self._signal()

    def unite(self, boards: Sequence["StatusBoard"]) -> None:
        """Shows the programs of several boards; of programs with the same name, the first counts."""
        values: dict[str, Any] = {}
        unreachable: dict[str, str] = {}
        for board in reversed(boards):
            values |= board.as_values()
            unreachable |= board.unreachable()
        if (values, unreachable) != (self.as_values(), self.unreachable()):
            self.mirror(values, unreachable)

    def unreachable(self) -> dict[str, str]:
        """Returns why programs cannot be reached, by name; an empty text if they can be."""
        return {name: status.unreachable for name, status in self.programs.items()}

    def mirror(self, values: Mapping[str, Any], unreachable: Mapping[str, str] = _NONE) -> None:
        """Shows the programs of another board, as its `as_values` returned them.

        Args:
            unreachable: See `unreachable`; programs not in it can be reached.
        """
        for name in self.programs.keys() - values.keys():
            self.remove(name)
        for name in values.keys() - self.programs.keys():
            self.programs[name] = ProgramStatus(name, values[name][1])
        for name, status in self.programs.items():
            state, status.num_wanted, replicas, status.error = values[name]
            status.unreachable = unreachable.get(name, "")
            status.replicas = {key: ReplicaStatus.of_report(key, report) for key, report in replicas.items()}
            self._set(status, ProgramState(state))

    def _settle(self, status: ProgramStatus) -> None:
        """Derives the state of a program from the states of its replicas."""
        states = {replica.state for replica in status.replicas.values()}
        if ReplicaState.READY in states:
            state = ProgramState.STARVED if status.is_starved else ProgramState.READY
        elif not status.num_wanted and status.is_off:
            state = ProgramState.OFF
        elif not status.num_wanted:
            state = ProgramState.PARKED if states else ProgramState.COLD
        elif ReplicaState.LOADING in states:
            state = ProgramState.LOADING
        elif status.error:
            state = ProgramState.FAILING
        else:
            state = ProgramState.LOADING if states else ProgramState.STARTING
        self._set(status, state)

    def _set(self, status: ProgramStatus, state: ProgramState) -> None:
        if status.state is not state:
            status.state = state
            status.since_s = time.monotonic()
        self._signal(status.name)
