"""What the tasks and the engine need of a scheduler, and of the shell.

`dyorc.engine.scheduling.scheduler` is the one used in production. How calls ended travels the other way, in `Turn.ended`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.events import (
    BatchDone,
    BatchFailed,
    BatchPart,
    BatchUnsent,
    InputPartsTaken,
    LoadFailed,
    ProgramAdded,
    ProgramRemoved,
    ReplicaJoined,
    ReplicaLeaving,
    ReplicaLeft,
    ReplicasWanted,
    SuspectsReported,
    TensorsLost,
    WorkflowRemoved,
)
from dyorc.engine.model.program_call import Call
from dyorc.engine.timers import Timer
from dyorc.errors import CapacityError, DyOrcError

ReplicaEvent: TypeAlias = (
    BatchDone | BatchPart | InputPartsTaken | BatchFailed | BatchUnsent | TensorsLost | ReplicaJoined | ReplicaLeft
    | ReplicaLeaving | LoadFailed | ReplicasWanted | SuspectsReported | ProgramAdded | ProgramRemoved | WorkflowRemoved
)  # fmt: skip
"""What can happen to replicas and their batches, and what is wanted of programs."""


class Load(msgspec.Struct, frozen=True):
    """The load of a program.

    Attributes:
        num_queued: Calls that are certain and wait.
        num_running: Calls in batches that have been sent, guesses included.
        line: How long a batch of n calls takes, as measured: (b, a) of b + a*n seconds; None before the first batch. If calls
            differ in their cost, n calls of the mean cost.
        max_size: Most calls in a batch, if they are of the mean cost.
        waiting_bytes: Bytes of the tensors that the first of the waiting calls will read, by the node that holds them.
    """

    num_queued: int
    num_running: int
    line: tuple[float, float] | None
    max_size: int
    waiting_bytes: Mapping[str, int] = {}


class Dispatcher(Protocol):
    """What the tasks need of a scheduler."""

    def submit(self, call: Call) -> None:
        """Takes a call whose inputs are all there."""
        ...

    def submit_all(self, calls: Sequence[Call]) -> None:
        """Takes calls of one program whose inputs are all there."""
        ...

    def commit(self, call: Call) -> None:
        """Makes certain a submitted guess that has not run yet."""
        ...

    def withdraw(self, call: Call) -> None:
        """Takes a call out of its queue, if it is in one. The caller sets its new state."""
        ...

    def grant(self, call: Call) -> None:
        """Lets a call that yields go on, if it runs, as far as its stream was read."""
        ...

    def restart(self, call: Call) -> None:
        """Has a running call that yields run again from its start."""
        ...

    def evict(self, blocks: Iterable[BlockId]) -> None:
        """Drops residents that are to be computed again elsewhere."""
        ...

    def home_of(self, call: Call) -> str:
        """Returns where residents of a call's task have to be made again; empty if anywhere."""
        ...

    def bring_together(self, call: Call, residents: Sequence[TensorRef]) -> str:
        """Returns where residents that meet in a call are brought together: in the home of its task, which is chosen now if it
        has none."""
        ...

    def feed(self, call: Call, stream: int, index: int, tensors: tuple[TensorRef, ...]) -> None:
        """Sends a running call the next part of one of its streams."""
        ...

    def end_feed(self, call: Call, stream: int, index: int, error: DyOrcError | None) -> None:
        """Sends a running call the end of one of its streams, which has failed if there is an error."""
        ...

    def task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        """Learns how long a task took, since decisions may wait for similar ones."""
        ...


class Scheduling(Dispatcher, Protocol):
    """What the engine needs of a scheduler."""

    def are_calls_waiting(self, programs: Iterable[Program]) -> bool:
        """Returns whether a call of one of these programs waits for a replica."""
        ...

    def check_room(self, programs: Iterable[Program]) -> CapacityError | None:
        """Returns why a request that may call `programs` cannot be accepted now; None if it can."""
        ...

    def take(self, event: ReplicaEvent) -> None:
        """Handles what happened to a replica or a batch."""
        ...

    def fire(self, timer: Timer) -> None:
        """Handles a due timer that the scheduler has set."""
        ...

    def lose(self, blocks: Iterable[BlockId]) -> None:
        """Marks blocks that cannot be read from their holders."""
        ...

    def forget(self, blocks: Iterable[BlockId]) -> None:
        """Forgets released blocks."""
        ...

    def drain(self) -> None:
        """Forms batches for all programs that were touched."""
        ...

    def load(self, program: str) -> Load:
        """Returns a program's load."""
        ...

    def coldness(self, program: str) -> str:
        """Returns why calls of a program cannot run now, if that is because none of its replicas is ready; empty otherwise."""
        ...

    def report(self, program: str) -> dict[str, Any]:
        """Returns a program's queue and costs, as plain values."""
        ...


class StepMonitor(Protocol):
    """Measures user code: a step of a workflow, the predicate of a decision, the cost of a call, or what runs when a workflow is
    closed. May interrupt it with `StepInterrupted`."""

    @property
    def is_measuring(self) -> bool:
        """Whether a step has begun and not ended."""
        ...

    def begin(self, workflow: str) -> None:
        """Begins a step of this workflow's code, or of what is done for it."""
        ...

    def charge(self, program: str) -> None:
        """Says whose code runs within the step: the cost of a call of this program; empty: the workflow's own again."""
        ...

    def end(self) -> None:
        """Ends a step that was not interrupted."""
        ...

    def abort(self) -> str:
        """Ends a step that was interrupted. Returns the text of the error."""
        ...

    def interruption(self) -> str:
        """Returns how the last step was interrupted: after how long, and where."""
        ...
