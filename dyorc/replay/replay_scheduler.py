"""The scheduler of a replay: each call runs alone, at once. Nothing waits, no call is a guess, and nothing is lost."""

from collections.abc import Mapping, Sequence
from itertools import count

from dyorc.authoring.program import Program
from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import CancelBatch, DispatchBatch, FeedPart, FormReason, GrantParts
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import BatchDone, BatchFailed, BatchPart, InputPartsTaken
from dyorc.engine.interfaces import ReplicaEvent
from dyorc.engine.model.program_call import Call
from dyorc.engine.scheduling.failed_streams import error_of
from dyorc.engine.turn import CallDone, CallFailed, CallPart, CallStarted, InputTaken
from dyorc.errors import DyOrcError, InternalError
from dyorc.simulation.basic_scheduler import BasicScheduler


class ReplayScheduler(BasicScheduler):
    """A scheduler for `dyorc.engine.engine.Engine`. Residents are nowhere: they are names that calls hand on.

    Args:
        programs: What is deployed, by name.
    """

    def __init__(self, context: EngineContext, programs: Mapping[str, Program]) -> None:
        super().__init__(context)
        self._max_untaken = context.config.max_untaken_parts
        self._running: dict[int, Call] = {}
        self._number_of: dict[Call, int] = {}
        self._numbers = count(1)

    def submit(self, call: Call) -> None:
        """Sends a call."""
        number = next(self._numbers)
        call.enqueue()
        call.dispatch()
        self._running[number] = call
        self._number_of[call] = number
        if call.streams or call.parts is not None:
            self._turn.ended.append(CallStarted(call))
        self._turn.actions.append(
            DispatchBatch(
                "", number, call.callee, (call.operands,), call.statics, FormReason.QUEUE_EMPTIED, max_parts=self._limit(call)
            )
        )

    def submit_all(self, calls: Sequence[Call]) -> None:
        """Does the same for several."""
        for call in calls:
            self.submit(call)

    def _limit(self, call: Call) -> int:
        """Returns how many parts a call may send, as far as its stream was read."""
        if call.parts is None:
            return 0
        most = call.callee.options.max_parts + 1
        return most if call.parts.is_unbounded else min(most, call.parts.num_read + self._max_untaken)

    def grant(self, call: Call) -> None:
        """Lets a call that yields go on, as far as its stream was read."""
        if (number := self._number_of.get(call)) is not None:
            self._turn.actions.append(GrantParts("", number, self._limit(call)))

    def feed(self, call: Call, stream: int, index: int, tensors: tuple[TensorRef, ...]) -> None:
        """Sends a call the next part of a stream."""
        if (number := self._number_of.get(call)) is not None:
            self._turn.actions.append(FeedPart("", number, stream, index, tensors))

    def end_feed(self, call: Call, stream: int, index: int, error: DyOrcError | None) -> None:
        """Sends a call the end of a stream."""
        if (number := self._number_of.get(call)) is not None:
            self._turn.actions.append(FeedPart("", number, stream, index, (), True, error))

    def withdraw(self, call: Call) -> None:
        """Ends a call: what still comes of it is dropped."""
        if (number := self._number_of.pop(call, None)) is not None:
            del self._running[number]
            self._turn.actions.append(CancelBatch("", number))

    def take(self, event: ReplicaEvent) -> None:
        """Handles what came of a call."""
        match event:
            case BatchDone(batch_id=number, outputs=outputs):
                if (call := self._end(number)) is not None:
                    self._turn.ended.append(CallDone(call, outputs[0]))
            case BatchFailed(batch_id=number):
                if (call := self._end(number)) is not None:
                    self._turn.ended.append(CallFailed(call, error_of(call, event)))
            case BatchPart(batch_id=number):
                if (call := self._running.get(number)) is not None:
                    self._turn.ended.append(CallPart(call, event.index, event.tensors, event.digest))
            case InputPartsTaken(batch_id=number):
                if (call := self._running.get(number)) is not None:
                    self._turn.ended.append(InputTaken(call, event.stream, event.num_taken))
            case _:
                raise InternalError(f"a replay has no replicas, but there was {event}")

    def _end(self, number: int) -> Call | None:
        """Returns the call with this number, which ends; None if it was withdrawn."""
        call = self._running.pop(number, None)
        if call is not None:
            del self._number_of[call]
        return call
