"""The scheduler of a replay: each call runs alone, at once. Nothing waits, and no call is a guess."""

from collections.abc import Mapping, Sequence
from itertools import count

from dyorc.authoring.program import Program
from dyorc.engine.actions import DispatchBatch, FormReason
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import BatchDone, BatchFailed
from dyorc.engine.interfaces import ReplicaEvent
from dyorc.engine.model.program_call import Call
from dyorc.engine.scheduling.failed_streams import error_of
from dyorc.engine.turn import CallDone, CallFailed
from dyorc.errors import InternalError
from dyorc.simulation.basic_scheduler import BasicScheduler


class ReplayScheduler(BasicScheduler):
    """A scheduler for `dyorc.engine.engine.Engine`. Its programs neither read nor yield streams, nor keep residents.

    Args:
        programs: What is deployed, by name.
    """

    def __init__(self, context: EngineContext, programs: Mapping[str, Program]) -> None:
        super().__init__(context)
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

    def submit_all(self, calls: Sequence[Call]) -> None:
        """Does the same for several."""
        for call in calls:
            self.submit(call)

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
