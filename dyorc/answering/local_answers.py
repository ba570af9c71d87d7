"""Requests in flight, from when they are opened until their receivers have an answer or an error.

Brings in the bytes of answers, parts, and values that workflows read, and tells the engine when they have been taken, or that
they are lost. Lives on the event loop; large outputs are taken on a thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from dyorc.answering.part_stream import PartStream, ReadPart
from dyorc.answering.requests_in_flight import RequestInFlight
from dyorc.answering.tensor_exchange import Tensors, has_stored, inline_array
from dyorc.core.arrays import Array, freeze
from dyorc.core.tensor import BlockId, TensorRef, blocks_of
from dyorc.engine.actions import AnswerPart, AnswerRequest, FetchValue
from dyorc.engine.events import AnswerTaken, Event, PartTaken, RequestCancelled, ValueFetched
from dyorc.errors import InternalError
from dyorc.system.thread_offload import INLINE_BYTES, ThreadOffload
from dyorc.transport.inbox import InputsLostError
from dyorc.transport.outbox import num_bytes_of


def is_large(arrays: Sequence[Array]) -> bool:
    """Returns whether outputs are worth a thread."""
    num_bytes = 0
    for array in arrays:
        num_bytes += array.nbytes
    if num_bytes <= INLINE_BYTES and any(array.dtype == object for array in arrays):  # texts are longer than the pointers to them
        num_bytes = sum(map(num_bytes_of, arrays))
    return num_bytes > INLINE_BYTES


_log = structlog.get_logger("dyorc.orchestrator")

T = TypeVar("T")

SCHEDULER_FAILED = "the scheduler failed while the request was in flight"


def own_arrays(arrays: list[Array]) -> list[Array]:
    """Copies arrays that are views of other memory."""
    return [array if array.flags.owndata else array.copy() for array in arrays]


class LocalAnswers:
    """A `RequestOwner` for receivers in this process: hands them the answers, parts and errors of their requests.

    Args:
        tensors: Where bytes are.
        post: Takes an event for the engine.
    """

    def __init__(self, tensors: Tensors, post: Callable[[Event], None]) -> None:
        self._tensors = tensors
        self._post = post
        self._off_loop = ThreadOffload("dyorc-answers")
        self._pending: dict[int, RequestInFlight] = {}
        self._taking: set[asyncio.Task[Any]] = set()
        self._wanted: dict[tuple[BlockId, ...], list[FetchValue]] = {}

    @property
    def num_requests(self) -> int:
        """Requests in flight."""
        return len(self._pending)

    def open(self, request_id: int, pending: RequestInFlight) -> bool:
        """Begins a request. Returns whether no other is in flight."""
        self._pending[request_id] = pending
        return len(self._pending) == 1

    def give_up(self, request_id: int) -> RequestInFlight | None:
        """Forgets a request, unless it has ended or its receiver is taking the outputs on a thread. Returns what it forgot."""
        pending = self._pending.get(request_id)
        if pending is None or pending.is_taking:
            return None
        self._forget(request_id, pending)
        return pending

    def fail(self, request_id: int, error: Exception) -> None:
        """Hands an error over, if the request is still in flight."""
        pending = self._pending.get(request_id)
        if pending is not None:
            self._end(request_id, pending, error)

    def lose_all(self) -> None:
        """Fails what is in flight, because its engine is gone. What is being taken on a thread may still become an answer."""
        for request_id, pending in list(self._pending.items()):
            pending.is_untaken = False
            if not pending.is_taking:
                self.fail(request_id, InternalError(SCHEDULER_FAILED))

    async def close(self) -> None:
        """Hands over what threads are making of outputs, whose memory must still be there, and fails the rest."""
        self._off_loop.close()
        if self._taking:
            await asyncio.wait(self._taking)
        for request_id in list(self._pending):
            self.fail(request_id, InternalError("the orchestrator has stopped"))

    def _end(self, request_id: int, pending: RequestInFlight, error: Exception | None, taken: Any = None) -> None:
        """Ends a request: hands over the error or what was made of the outputs, and the record, even if the receiver raises."""
        self._forget(request_id, pending)
        try:
            if error is not None:
                pending.receiver.failed(error)
            else:
                pending.receiver.done(taken)
        except Exception as raised:  # others must not wait for theirs because of it
            _log.exception("answer_not_delivered", request=request_id)
            error = error or raised
        if pending.recorded is not None:
            pending.recorded.end(error)

    def _forget(self, request_id: int, pending: RequestInFlight) -> None:
        del self._pending[request_id]
        pending.identity.close()

    def announce_effect(self, requests: Sequence[int]) -> None:
        """Lets those who sent these requests know that an effect that must not be repeated is about to begin."""
        for request_id in requests:
            pending = self._pending.get(request_id)
            if pending is not None and pending.effect_begins is not None:
                pending.effect_begins()

    def confirm_effect(self, requests: Sequence[int], go: Callable[[bool], None]) -> None:
        """Allows the effect at once: receivers in this process end with it."""
        go(True)

    # Answers

    def answer(self, action: AnswerRequest) -> None:
        """Hands an answer over, now or when its bytes are here."""
        request_id, tensors = action.request_id, action.tensors
        pending = self._pending.get(request_id)
        if has_stored(tensors):
            self._answer_stored(request_id, tensors)
        elif pending is not None:
            self._hand_over(request_id, pending, [inline_array(tensor) for tensor in tensors])

    def _answer_stored(self, request_id: int, tensors: Sequence[TensorRef]) -> None:
        """Hands over an answer whose bytes the engine keeps until they are taken."""

        def hand_over(arrays: list[Array]) -> None:
            pending = self._pending.get(request_id)
            if pending is None:
                self._post(AnswerTaken(request_id))
                return
            pending.stored, pending.is_untaken = tensors, True
            self._hand_over(request_id, pending, arrays)

        def lose(blocks: Sequence[BlockId]) -> None:
            self._post(AnswerTaken(request_id, blocks))

        def fail(error: Exception) -> None:
            self.fail(request_id, InternalError(f"the answer could not be put together: {error}"))
            self._post(AnswerTaken(request_id))

        self._read(tensors, hand_over, lose, fail)

    def _hand_over(self, request_id: int, pending: RequestInFlight, arrays: list[Array]) -> None:
        """Hands the outputs to the receiver: small ones now, large ones on a thread."""
        if not is_large(arrays):
            self._finish(request_id, pending, partial(pending.receiver.take, arrays))
            return
        pending.is_taking = True
        taking = asyncio.create_task(self._off_loop.run(pending.receiver.take, arrays))
        self._taking.add(taking)
        taking.add_done_callback(partial(self._end_taking, request_id, pending))

    def _end_taking(self, request_id: int, pending: RequestInFlight, taking: "asyncio.Task[Any]") -> None:
        self._taking.discard(taking)
        pending.is_taking = False
        self._finish(request_id, pending, taking.result)

    def _finish(self, request_id: int, pending: RequestInFlight, take: Callable[[], Any]) -> None:
        """Ends a request with what its receiver makes of the outputs. Outputs that were lost meanwhile are computed again."""
        taken, error = None, None
        try:
            taken = take()
        except Exception as raised:
            error = raised
        if pending.stored:
            lost = self._tensors.lost_of(pending.stored) if error is None else ()
            pending.stored = ()
            if pending.is_untaken:
                pending.is_untaken = False
                self._post(AnswerTaken(request_id, lost))
                if lost:
                    return
            elif lost:
                error = InternalError(SCHEDULER_FAILED)
        self._end(request_id, pending, error, taken)

    # Parts

    def part(self, action: AnswerPart) -> None:
        """Adds a part to its stream once its bytes are here. The engine keeps them until it is taken."""
        request_id, index, tensors = action.request_id, action.index, action.tensors
        for tensor in tensors:
            if tensor.block or tensor.views:
                break
        else:  # its arrays are here: the rest would cost more than all that is done with them
            self._add_part(action, [tensor.data for tensor in tensors])
            return

        def hand_over(arrays: list[Array]) -> None:
            self._add_part(action, arrays)

        def lose(blocks: Sequence[BlockId]) -> None:
            self._post(PartTaken(request_id, index, blocks))

        def fail(error: Exception) -> None:
            self.fail(request_id, InternalError(f"part {index} could not be put together: {error}"))
            self._post(RequestCancelled(request_id))  # the engine would wait until the part is taken

        self._read(tensors, hand_over, lose, fail)

    def _add_part(self, action: AnswerPart, arrays: list[Array]) -> None:
        pending = self._pending.get(action.request_id)
        if pending is not None and pending.stream is not None:
            pending.stream.add(ReadPart(action.index, action.tensors, arrays))

    async def take_parts(
        self, request_id: int, stream: PartStream, parts: Sequence[ReadPart], take: Callable[[list[Array]], T]
    ) -> list[T]:
        """Applies `take` to parts, up to the first that turns out to be lost, which will come again."""
        taken: list[T] = []
        for part in parts:
            value = await self._off_loop.run(take, part.arrays) if is_large(part.arrays) else take(part.arrays)
            if lost := self._tensors.lost_of(part.tensors):
                stream.lose(part)
                self._post(PartTaken(request_id, part.index, lost))
                break
            stream.take(part)
            taken.append(value)
        return taken

    def release_parts(self, request_id: int, parts: Sequence[ReadPart]) -> None:
        """Tells the engine that these parts are no longer needed."""
        for part in parts:
            self._post(PartTaken(request_id, part.index))

    # Values that workflows read

    def fetch(self, action: FetchValue) -> None:
        """Fetches values for a workflow to read, at the end of the turn: with all others that lie in the same blocks, as the rows
        of one batch do.
        """
        self._wanted.setdefault(tuple(blocks_of(action.tensors)), []).append(action)

    def end_turn(self) -> None:
        """Begins to fetch what was asked for."""
        wanted, self._wanted = self._wanted, {}
        for actions in wanted.values():
            self._fetch(actions)

    def _fetch(self, actions: Sequence[FetchValue]) -> None:
        """Reads values at once, and copies them, since workflows may use them longer than the bytes are kept."""
        tensors = [tensor for action in actions for tensor in action.tensors]

        def show(arrays: list[Array]) -> None:
            values = [freeze(array) for array in own_arrays(arrays)]  # so that no call that gets one has to copy it
            if lost := self._tensors.lost_of(tensors):
                lose(lost)
                return
            end = 0
            for action in actions:
                start, end = end, end + len(action.tensors)
                self._post(ValueFetched(action.fetch_id, tuple(values[start:end])))

        def lose(blocks: Sequence[BlockId]) -> None:
            for action in actions:  # all of them have tensors in each of the blocks
                self._post(ValueFetched(action.fetch_id, lost=blocks))

        def fail(error: Exception) -> None:
            for action in actions:
                self._post(ValueFetched(action.fetch_id, error=InternalError(f"a value could not be brought in: {error}")))

        self._read(tensors, show, lose, fail)

    def _read(
        self,
        tensors: Sequence[TensorRef],
        use: Callable[[list[Array]], None],
        lose: Callable[[Sequence[BlockId]], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Reads the bytes of tensors: now if they are on this node, else on a thread. Then calls `use` or `lose`; `fail` if one
        of the steps raises, so that no request waits for ever."""

        def finish(read: Callable[[], list[Array]]) -> None:
            try:
                use(read())
            except InputsLostError as error:
                lose(error.blocks)
            except Exception as error:
                _log.exception("tensors_not_read")
                fail(error)

        if self._tensors.is_near(tensors):
            finish(partial(self._tensors.read, tensors))
        else:
            self._tensors.fetch(tensors).add_done_callback(lambda future: finish(future.result))
