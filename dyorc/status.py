"""What each program is doing, for people and for the health routes."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dyorc.authoring.program import Program


class ProgramState(Enum):
    STARTING = "starting"
    """No process yet."""
    LOADING = "loading"
    """A process is up and loads the weights."""
    READY = "ready"
    """At least one replica takes batches."""
    FAILING = "failing"
    """The last attempt to load it failed, and no replica is left."""


BEST_FIRST = (ProgramState.READY, ProgramState.LOADING, ProgramState.STARTING, ProgramState.FAILING)


@dataclass
class ProgramStatus:
    """One program's replicas. `since_s` is when the state began (monotonic)."""

    name: str
    num_wanted: int
    state: ProgramState = ProgramState.STARTING
    since_s: float = field(default_factory=time.monotonic)
    replica_pids: dict[str, int] = field(default_factory=dict[str, int])
    error: str = ""

    def as_report(self) -> dict[str, Any]:
        """Returns the status as plain values."""
        return {
            "state": self.state.value,
            "num_replicas": len(self.replica_pids),
            "num_wanted": self.num_wanted,
            "error": self.error or None,
        }


class StatusBoard:
    """Every program's status; signals changes."""

    def __init__(self, programs: Iterable[Program]) -> None:
        self.programs = {program.name: ProgramStatus(program.name, program.options.bounds.num_at_start) for program in programs}
        self._changed = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether every program has a replica."""
        return all(status.state is ProgramState.READY for status in self.programs.values())

    @property
    def is_failing(self) -> bool:
        """Whether some program could not be loaded the last time."""
        return any(status.state is ProgramState.FAILING for status in self.programs.values())

    def twin(self) -> "StatusBoard":
        """Returns a board of the same programs that knows nothing of them yet."""
        board = StatusBoard(())
        board.programs = {name: ProgramStatus(name, one.num_wanted) for name, one in self.programs.items()}
        return board

    async def wait_for_change(self, timeout_s: float) -> None:
        """Waits until some program's status changes, at most `timeout_s`."""
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return

    def want(self, program: str, num_replicas: int) -> None:
        """Sets how many replicas a program has at most, whatever it declares."""
        self.programs[program].num_wanted = num_replicas

    def loading(self, program: str) -> None:
        """Notes that a replica's process is up."""
        if self.programs[program].state is not ProgramState.READY:
            self._set(self.programs[program], ProgramState.LOADING)

    def joined(self, program: str, replica_id: str, pid: int) -> None:
        """Notes that a replica is ready."""
        status = self.programs[program]
        status.replica_pids[replica_id] = pid
        status.error = ""
        self._set(status, ProgramState.READY)

    def left(self, replica_id: str) -> None:
        """Notes that a replica is gone."""
        for status in self.programs.values():
            if status.replica_pids.pop(replica_id, None) is not None and not status.replica_pids:
                self._set(status, ProgramState.STARTING)

    def load_failed(self, program: str, error: str) -> None:
        """Notes that a replica could not load its program."""
        status = self.programs[program]
        status.error = error
        if not status.replica_pids:
            self._set(status, ProgramState.FAILING)

    def as_values(self) -> dict[str, Any]:
        """As plain values, by program, for `show`."""
        return {one.name: [one.state.value, one.num_wanted, dict(one.replica_pids), one.error] for one in self.programs.values()}

    def show(self, boards: Mapping[int, Mapping[str, Any]], pick: Callable[..., ProgramState]) -> None:
        """Becomes what several processes report together.

        Args:
            boards: `as_values` of each, by its number.
            pick: `min` or `max` of their states, of which the best is the smallest.
        """
        for name, status in self.programs.items():
            ones = {number: board[name] for number, board in boards.items()}
            status.num_wanted = sum(one[1] for one in ones.values())
            status.replica_pids = {f"{number}/{key}": pid for number, one in ones.items() for key, pid in one[2].items()}
            status.error = next((one[3] for one in ones.values() if one[3]), "")
            self._set(status, pick((ProgramState(one[0]) for one in ones.values()), key=BEST_FIRST.index))

    def _set(self, status: ProgramStatus, state: ProgramState) -> None:
        if status.state is not state:
            status.state = state
            status.since_s = time.monotonic()
        self._changed.set()
