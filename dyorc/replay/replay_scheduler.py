"""The scheduler of a replay: each call runs alone, at once. Nothing waits, and no call is a guess."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import DispatchBatch, FormReason
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import BatchDone, BatchFailed
from dyorc.engine.interfaces import Load, ReplicaEvent
from dyorc.engine.model.program_call import Call
from dyorc.engine.scheduling.failed_streams import error_of
from dyorc.engine.timers import Timer
from dyorc.engine.turn import CallDone, CallFailed
from dyorc.errors import CapacityError, DyOrcError, InternalError


class ReplayScheduler:
    """A scheduler for `dyorc.engine.engine.Engine`. Its programs neither read nor yield streams, nor keep residents.

    Args:
        programs: What is deployed, by name.
    """

    def __init__(self, context: EngineContext, programs: Mapping[str, Program]) -> None:
        self._turn = context.turn
        self._running: dict[int, Call] = {}
        self._numbers = count(1)

    def submit(self, call: Call) -> None:
        """Sends a call."""
        number = next(self._numbers)
        call.enqueue()
        call.dispatch()
        self._running[number] = call
        self._turn.actions.append(
            DispatchBatch("", number, call.callee, (call.operands,), call.statics, FormReason.QUEUE_EMPTIED)
        )

    def take(self, event: ReplicaEvent) -> None:
        """Ends a call."""
        match event:
            case BatchDone(batch_id=number, outputs=outputs):
                self._turn.ended.append(CallDone(self._running.pop(number), outputs[0]))
            case BatchFailed(batch_id=number):
                call = self._running.pop(number)
                self._turn.ended.append(CallFailed(call, error_of(call, event)))
            case _:
                raise InternalError(f"a replay has no replicas, but there was {event}")

    def check_room(self, programs: Iterable[Program]) -> CapacityError | None:
        """Returns None: there is always room."""
        return None

    def are_calls_waiting(self, programs: Iterable[Program]) -> bool:
        """Returns False: no call waits."""
        return False

    def commit(self, call: Call) -> None:
        raise InternalError(f"{call!r} was a guess, and a replay makes none")

    def withdraw(self, call: Call) -> None:
        """Does nothing: its result is dropped when it comes."""

    def grant(self, call: Call) -> None:
        """Does nothing: no program yields."""

    def restart(self, call: Call) -> None:
        """Does nothing: no program yields."""

    def evict(self, blocks: Iterable[BlockId]) -> None:
        """Does nothing: no program keeps residents."""

    def home_of(self, call: Call) -> str:
        """Returns nothing: no program keeps residents."""
        return ""

    def bring_together(self, call: Call, residents: Sequence[TensorRef]) -> str:
        """Returns nothing: no program keeps residents."""
        return ""

    def feed(self, call: Call, stream: int, index: int, tensors: tuple[TensorRef, ...]) -> None:
        """Does nothing: no program reads a stream."""

    def end_feed(self, call: Call, stream: int, index: int, error: DyOrcError | None) -> None:
        """Does nothing: no program reads a stream."""

    def task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        """Does nothing: there is nothing to look ahead for."""

    def fire(self, timer: Timer) -> None:
        """Does nothing: it sets no timers."""

    def lose(self, blocks: Iterable[BlockId]) -> None:
        """Does nothing: nothing is lost."""

    def forget(self, blocks: Iterable[BlockId]) -> None:
        """Does nothing: no memory is held."""

    def drain(self) -> None:
        """Does nothing: no call waits."""

    def load(self, program: str) -> Load:
        """Returns no load."""
        return Load(0, 0, None, 1)

    def coldness(self, program: str) -> str:
        """Returns nothing: no program is cold."""
        return ""

    def report(self, program: str) -> dict[str, Any]:
        """Returns nothing."""
        return {}
