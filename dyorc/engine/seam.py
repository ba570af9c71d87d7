"""What the tasks and the engine need of a scheduler, and of the shell.

`dyorc.engine.scheduling.scheduler` is the scheduler that serves. How calls ended goes the other way, through `Turn.ended`.
"""

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.engine.events import BatchDone, BatchFailed, LoadFailed, ReplicaJoined, ReplicaLeft, TensorsLost
from dyorc.engine.model.calls import Call
from dyorc.engine.timers import Timer
from dyorc.errors import CapacityError
from dyorc.tensor import BlockId

ReplicaEvent: TypeAlias = BatchDone | BatchFailed | TensorsLost | ReplicaJoined | ReplicaLeft | LoadFailed
"""What happens to replicas and their batches."""


class Dispatcher(Protocol):
    """What the tasks need of a scheduler."""

    def submit(self, call: Call) -> None:
        """Takes a call whose inputs are all there."""
        ...

    def commit(self, call: Call) -> None:
        """A submitted guess that has not run yet is certain now."""
        ...

    def withdraw(self, call: Call) -> None:
        """Takes a call out of its queue, if it is in one. The caller gives it another state."""
        ...

    def task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        """A task, whose result decisions may wait for, took so long."""
        ...


class Scheduling(Dispatcher, Protocol):
    """What the engine needs of a scheduler."""

    def check_room(self, programs: Iterable[Program]) -> CapacityError | None:
        """Why a request that may call `programs` cannot be taken now, if so."""
        ...

    def take(self, event: ReplicaEvent) -> None:
        """Something happened to a replica or a batch."""
        ...

    def fire(self, timer: Timer) -> None:
        """The time of one of its timers has come."""
        ...

    def lose(self, blocks: Iterable[BlockId]) -> None:
        """These blocks cannot be had from their holders."""
        ...

    def forget(self, blocks: Iterable[BlockId]) -> None:
        """These blocks are released."""
        ...

    def drain(self) -> None:
        """Forms batches for all programs that were touched."""
        ...

    def report(self, program: str) -> dict[str, Any]:
        """A program's queue and what it costs, as plain values."""
        ...


class StepWatch(Protocol):
    """Measures the users' code: a step of a workflow, or the predicate of a decision. May interrupt it with `StepInterrupted`."""

    def begin(self, workflow: str) -> None:
        """A step begins."""
        ...

    def end(self) -> None:
        """It has ended by itself."""
        ...

    def abort(self) -> str:
        """It was interrupted. Returns what to tell the user."""
        ...
