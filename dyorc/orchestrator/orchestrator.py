"""The orchestrator: the asyncio shell that feeds the engine and carries out what it decides.

It owns the clock and the requests; a `Fleet` has the replicas, `Tensors` knows where bytes are. Everything happens on one
event loop. Events of one turn of the loop reach the engine together, so that they can share batches.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar, assert_never, cast

import structlog

from dyorc.arrays import Array
from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig
from dyorc.engine.actions import (
    Action,
    AnswerPart,
    AnswerRequest,
    DispatchBatch,
    FailRequest,
    FetchValue,
    ReleaseTensors,
    ReplaceReplica,
    SetTimer,
    StageTensors,
)
from dyorc.engine.engine import Engine
from dyorc.engine.events import (
    AnswerTaken,
    Event,
    PartTaken,
    RequestArrived,
    RequestCancelled,
    TimerFired,
    ValueFetched,
)
from dyorc.engine.shared import Host
from dyorc.engine.statistics import ModelStatistics
from dyorc.engine.story import Step
from dyorc.errors import InternalError
from dyorc.off_loop import OffLoop
from dyorc.orchestrator.fleet import Fleet
from dyorc.orchestrator.identity import InputsIdentity
from dyorc.orchestrator.part_stream import PartStream, ReadPart
from dyorc.orchestrator.pending import Awaited, Pending
from dyorc.orchestrator.step_watch import StepWatch
from dyorc.orchestrator.taking import is_large
from dyorc.orchestrator.tensors import Tensors, carried, has_stored
from dyorc.receiver import Receiver
from dyorc.status import StatusBoard
from dyorc.tensor import TensorRef
from dyorc.terms import Terms
from dyorc.transport.body import Body
from dyorc.transport.inbox import InputsLostError

_log = structlog.get_logger("dyorc.orchestrator")

T = TypeVar("T")

_PLAIN = Terms()
_SCHEDULER_FAILED = "the scheduler failed while the request was in flight"
_MAX_TURN_NS = 2_000_000
"""After this long, what has come of a turn waits for the next, so that connections are served in between."""


def own_arrays(arrays: list[Array]) -> list[Array]:
    """Copies those arrays that are views of somebody else's memory."""
    return [array if array.flags.owndata else array.copy() for array in arrays]


class Orchestrator:
    """Runs workflows on replicas.

    Args:
        programs: What is deployed.
        tensors: References to all tensors; open as long as the orchestrator runs.
        status: What each program is doing, as `fleet` reports it.
        fleet: The replicas.

    Attributes:
        tensors: The same.
        status: The same.
    """

    def __init__(
        self, programs: Sequence[Program], config: EngineConfig, tensors: Tensors, status: StatusBoard, fleet: Fleet
    ) -> None:
        self._programs = programs
        self._config = config
        self._watch = StepWatch(config.step_warning_s, config.step_limit_s)
        # A replica may still answer an earlier engine, of this process or of one before it.
        self._host = Host(batch_ids=count(secrets.randbits(48)), watch=self._watch)
        self._engine = self._new_engine()
        self.status = status
        self.tensors = tensors
        self._fleet = fleet
        self._off_loop = OffLoop("dyorc-answers")
        self._events: list[Event] = []
        self._is_flush_due = False
        self._is_flushing = False
        self._num_arrived = 0
        self._is_crowded = False
        self._pending: dict[int, Pending] = {}
        self._streams: dict[int, PartStream] = {}
        self._stories: dict[int, list[Step]] = {}
        self._num_requests = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stack.enter_context(self._watch)
            stack.enter_context(self.tensors.exchange)
            self.tensors.open()
            stack.callback(self.tensors.close)
            stack.callback(self._off_loop.close)
            await stack.enter_async_context(self._fleet.running(self._post, self._flush_now))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._stack.aclose()
        await asyncio.gather(*self._tasks)
        for request_id in list(self._pending):
            self._fail(request_id, InternalError("the orchestrator has stopped"))

    @property
    def num_requests(self) -> int:
        """Requests in flight."""
        return len(self._pending)

    def report(self) -> dict[str, Any]:
        """Returns the current state as plain values: each program's replicas, queue and cost, and how guessing goes."""
        return {
            "num_requests": len(self._pending),
            "programs": {
                name: status.as_report() | self._engine.scheduler.report(name) for name, status in self.status.programs.items()
            },
            "speculation": self._engine.speculator.report(),
            "tensors": self.tensors.report(),
            "link": self._fleet.report(),
        }

    def statistics(self, name: str) -> ModelStatistics:
        """Returns the statistics of a workflow's requests, or of a program's calls, since the start."""
        return self._engine.statistics(name, time.time_ns() - time.monotonic_ns())

    def submit(
        self,
        workflow: Workflow,
        inputs: Sequence[Array],
        statics: tuple[StaticValue, ...],
        terms: Terms,
        receiver: Receiver[Any],
        *,
        story: list[Step] | None = None,
        body: Body | None = None,
    ) -> int:
        """Runs a workflow on checked inputs. Its receiver may be called before this returns.

        Args:
            story: Filled with the steps of the request (`dyorc.engine.story`), if its terms ask for them.
            body: Memory in which inputs lie already, if any do. The caller drops it.

        Returns:
            The request's number, for `cancel`.

        Raises:
            CapacityError: If the arena is full.
            PayloadTooLargeError: If the inputs would not fit into an empty arena.
        """
        return self._open(workflow, inputs, statics, terms, receiver, story, body)

    def _open(
        self,
        workflow: Workflow,
        inputs: Sequence[Array],
        statics: tuple[StaticValue, ...],
        terms: Terms,
        receiver: Receiver[Any],
        story: list[Step] | None,
        body: Body | None,
        stream: PartStream | None = None,
    ) -> int:
        """Begins a request. It may have parts, or its answer, before this returns."""
        tensors = self.tensors.keep_all(inputs, body)
        self._num_requests += 1
        request_id = self._num_requests
        identity = InputsIdentity(workflow.name, inputs, statics)
        self._pending[request_id] = Pending(receiver, identity)
        if story is not None:
            self._stories[request_id] = story
        if stream is not None:
            self._streams[request_id] = stream
        self._post(RequestArrived(request_id, workflow, tensors, statics, terms, identity))
        self._num_arrived += 1
        if len(self._pending) == 1 and self._num_arrived == 1 and not self._is_crowded:
            self._flush_now()  # there is nothing to share a batch with, so do not wait for the turn's end
        return request_id

    def cancel(self, request_id: int) -> bool:
        """Gives a request up, if it is still in flight.

        Returns:
            True if its receiver will not be called any more. An answer that is being made on a thread is completed, and a request
            that has already ended stays as it is.
        """
        pending = self._pending.get(request_id)
        if pending is None or pending.is_taking:
            return False
        self._forget(request_id, pending)
        self._post(RequestCancelled(request_id))
        return True

    async def infer(
        self,
        workflow: Workflow,
        inputs: Sequence[Array],
        statics: tuple[StaticValue, ...] = (),
        terms: Terms = _PLAIN,
        *,
        story: list[Step] | None = None,
        started: Callable[[asyncio.Future[Any]], None] | None = None,
        body: Body | None = None,
        take: Callable[[list[Array]], T] = cast(Any, own_arrays),  # noqa: B008
    ) -> T:
        """Runs a workflow on checked inputs.

        Cancelling this coroutine cancels the request; so does cancelling the future passed to `started`.

        Args:
            take: Turns the outputs into what is returned (`Receiver.take`); by default they are returned themselves.
            (others): See `submit`.

        Returns:
            What `take` returns.

        Raises:
            DyOrcError: See the tree in `dyorc.errors`.
        """
        receiver = Awaited(self._loop.create_future(), take)
        if started is not None:
            started(receiver.future)
        request_id = self.submit(workflow, inputs, statics, terms, receiver, story=story, body=body)
        try:
            return await receiver.future
        except asyncio.CancelledError:
            if not self.cancel(request_id):
                await receiver.end()
            raise

    async def stream(
        self,
        workflow: Workflow,
        inputs: Sequence[Array],
        statics: tuple[StaticValue, ...] = (),
        terms: Terms = _PLAIN,
        *,
        story: list[Step] | None = None,
        started: Callable[[asyncio.Future[Any]], None] | None = None,
        body: Body | None = None,
        take: Callable[[list[Array]], T] = cast(Any, own_arrays),  # noqa: B008
    ) -> AsyncGenerator[list[T]]:
        """Runs a workflow and yields its parts in order: parts that are ready at the same time come together, in a list.

        A part counts as taken when the caller asks for more. A slow caller holds the workflow up, after
        `EngineConfig.max_untaken_parts`. Closing this generator, or cancelling the future passed to `started`, cancels the
        request. A workflow that does not stream has one part. Arguments and errors are those of `infer`; parts that precede an
        error are yielded first.
        """
        if not workflow.is_streaming:
            yield [
                await self.infer(workflow, inputs, statics, terms, story=story, started=started, body=body, take=take),
            ]
            return
        end: Awaited[list[Array]] = Awaited(self._loop.create_future(), own_arrays)
        stream = PartStream(end.future)
        if started is not None:
            started(end.future)
        request_id = self._open(workflow, inputs, statics, terms, end, story, body, stream)
        try:
            while parts := await stream.next_parts():
                taken = await self._take_parts(request_id, stream, parts, take)
                if taken:
                    yield taken
                for part in parts[: len(taken)]:
                    self._post(PartTaken(request_id, part.index))
        finally:
            del self._streams[request_id]
            self.cancel(request_id)

    async def _take_parts(
        self, request_id: int, stream: PartStream, parts: Sequence[ReadPart], take: Callable[[list[Array]], T]
    ) -> list[T]:
        """Applies `take` to parts, up to the first that turns out to be lost, which will come again."""
        taken: list[T] = []
        for part in parts:
            value = await self._off_loop.run(take, part.arrays) if is_large(part.arrays) else take(part.arrays)
            if lost := self.tensors.lost_of(part.tensors):
                stream.lose(part)
                self._post(PartTaken(request_id, part.index, lost))
                break
            stream.take(part)
            taken.append(value)
        return taken

    def _forget(self, request_id: int, pending: Pending) -> None:
        """Ends a request that is in flight."""
        del self._pending[request_id]
        pending.identity.close()
        self._stories.pop(request_id, None)

    # Events in

    def _post(self, event: Event) -> None:
        self._events.append(event)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Ends the turn of the loop."""
        self._is_flush_due = False
        # Programs in this process may answer a request before the next arrives, so how many are in flight does not tell.
        if self._num_arrived:
            self._is_crowded = self._num_arrived > 1
            self._num_arrived = 0
        self._flush_now()

    def _flush_now(self) -> None:
        """Hands the engine all events, and does what it says; also those that come of that, unless it takes too long."""
        if not self._events or self._is_flushing:
            return
        self._is_flushing, was_due, self._is_flush_due = True, self._is_flush_due, True  # what is posted meanwhile is seen here
        give_up_ns = time.monotonic_ns() + _MAX_TURN_NS
        try:
            self._take_turn()
            while self._events and time.monotonic_ns() < give_up_ns:
                self._take_turn()
        finally:
            self._is_flushing, self._is_flush_due = False, was_due
        if self._events and not was_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _take_turn(self) -> None:
        """Hands the engine the events that there are, and does what it says."""
        events, self._events = self._events, []
        try:
            actions = self._engine.handle(events, time.monotonic_ns())
        except Exception:
            _log.exception("engine_failed")
            self._start_over()
            return
        for action in actions:
            try:
                self._carry_out(action)
            except Exception:
                _log.exception("action_failed", action=type(action).__name__)
                if isinstance(action, AnswerRequest | AnswerPart):
                    self._carry_out(FailRequest(action.request_id, InternalError("the answer could not be put together")))
        self._fleet.end_turn()

    def _new_engine(self) -> Engine:
        return Engine(self._config, self._programs, self._host)

    def _start_over(self) -> None:
        """Handles a bug of the engine: fails what is in flight, and starts a new engine. Idle replicas announce themselves
        again."""
        self._engine.count_lost()
        self._engine = self._new_engine()
        self._fleet.start_over()
        self.tensors.free_all()
        for request_id, pending in list(self._pending.items()):
            pending.is_untaken = False
            if not pending.is_taking:
                self._fail(request_id, InternalError(_SCHEDULER_FAILED))

    # Actions out

    def _carry_out(self, action: Action) -> None:
        match action:
            case DispatchBatch():
                self._fleet.dispatch(action)
            case AnswerRequest():
                self._answer(action)
            case AnswerPart(request_id=request_id, index=index, tensors=tensors):
                self._answer_part(request_id, index, tensors)
            case FailRequest(request_id=request_id, error=error):
                self._fail(request_id, error)
            case ReleaseTensors(blocks=blocks):
                self.tensors.free(blocks)
                self._fleet.release(blocks)
            case FetchValue(fetch_id=fetch_id, tensors=tensors):
                self._fetch(fetch_id, tensors)
            case SetTimer(at_ns=at_ns):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_later(max(0.0, (at_ns - time.monotonic_ns()) / 1e9), self._post, TimerFired())
            case StageTensors(replica_id=replica_id, tensors=tensors):
                self._fleet.stage(replica_id, tensors)
            case ReplaceReplica(replica_id=replica_id, reason=reason):
                self._fleet.give_up(replica_id, reason)
            case _:
                assert_never(action)

    def _fail(self, request_id: int, error: Exception) -> None:
        pending = self._pending.get(request_id)
        if pending is not None:
            self._forget(request_id, pending)
            pending.receiver.failed(error)

    def _answer(self, action: AnswerRequest) -> None:
        request_id, tensors = action.request_id, action.tensors
        if action.story and request_id in self._stories:
            self._stories[request_id].extend(action.story)
        if has_stored(tensors):
            self._answer_stored(request_id, tensors)
            return
        pending = self._pending.get(request_id)
        if pending is not None:
            self._hand_over(request_id, pending, [carried(tensor) for tensor in tensors])

    def _answer_stored(self, request_id: int, tensors: Sequence[TensorRef]) -> None:
        """Hands over an answer whose bytes the engine keeps until they are taken."""

        def hand_over(arrays: list[Array]) -> None:
            pending = self._pending.get(request_id)
            if pending is None:
                self._post(AnswerTaken(request_id))
                return
            pending.stored, pending.is_untaken = tensors, True
            self._hand_over(request_id, pending, arrays)

        def fail(error: Exception) -> None:
            if isinstance(error, InputsLostError):
                self._post(AnswerTaken(request_id, error.blocks))
                return
            self._fail(request_id, InternalError(f"the answer could not be put together: {error}"))
            self._post(AnswerTaken(request_id))

        self._read(tensors, hand_over, fail)

    def _hand_over(self, request_id: int, pending: Pending, arrays: list[Array]) -> None:
        """Has the receiver take the outputs: small ones now, large ones on a thread."""
        if is_large(arrays):
            pending.is_taking = True
            task = self._loop.create_task(self._take_aside(request_id, pending, arrays))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        try:
            taken = pending.receiver.take(arrays)
        except Exception as error:
            self._finish(request_id, pending, error=error)
        else:
            self._finish(request_id, pending, taken)

    async def _take_aside(self, request_id: int, pending: Pending, arrays: list[Array]) -> None:
        try:
            taken = await self._off_loop.run(pending.receiver.take, arrays)
        except Exception as error:
            pending.is_taking = False
            self._finish(request_id, pending, error=error)
        else:
            pending.is_taking = False
            self._finish(request_id, pending, taken)

    def _finish(self, request_id: int, pending: Pending, taken: Any = None, *, error: Exception | None = None) -> None:
        """Handles that the receiver has taken the outputs, or failed to. Outputs that were lost meanwhile are computed again."""
        if pending.stored:
            lost = self.tensors.lost_of(pending.stored) if error is None else ()
            pending.stored = ()
            if pending.is_untaken:
                pending.is_untaken = False
                self._post(AnswerTaken(request_id, lost))
                if lost:
                    return
            elif lost:
                error = InternalError(_SCHEDULER_FAILED)
        self._forget(request_id, pending)
        if error is not None:
            pending.receiver.failed(error)
        else:
            pending.receiver.done(taken)

    def _answer_part(self, request_id: int, index: int, tensors: Sequence[TensorRef]) -> None:
        """Hands over a part whose bytes the engine keeps until it is taken."""

        def hand_over(arrays: list[Array]) -> None:
            stream = self._streams.get(request_id)
            if stream is not None:
                stream.add(ReadPart(index, tensors, arrays))

        def fail(error: Exception) -> None:
            if isinstance(error, InputsLostError):
                self._post(PartTaken(request_id, index, error.blocks))
            else:
                self._carry_out(FailRequest(request_id, InternalError(f"part {index} could not be put together: {error}")))

        self._read(tensors, hand_over, fail)

    def _fetch(self, fetch_id: int, tensors: Sequence[TensorRef]) -> None:
        """Fetches values for a workflow to read: copies, since it may use them longer than the bytes are kept."""

        def show(arrays: list[Array]) -> None:
            values = tuple(own_arrays(arrays))
            lost = self.tensors.lost_of(tensors)
            self._post(ValueFetched(fetch_id, lost=lost) if lost else ValueFetched(fetch_id, values))

        def fail(error: Exception) -> None:
            if isinstance(error, InputsLostError):
                self._post(ValueFetched(fetch_id, lost=error.blocks))
            else:
                self._post(ValueFetched(fetch_id, error=InternalError(f"a value could not be brought in: {error}")))

        self._read(tensors, show, fail)

    def _read(self, tensors: Sequence[TensorRef], use: Callable[[list[Array]], None], fail: Callable[[Exception], None]) -> None:
        """Reads the bytes of tensors: now if they are on this node, else on a thread."""

        def finish(read: Callable[[], list[Array]]) -> None:
            try:
                arrays = read()
            except Exception as error:
                fail(error)
            else:
                use(arrays)

        if self.tensors.is_near(tensors):
            finish(lambda: self.tensors.read(tensors))
        else:
            self.tensors.fetch(tensors).add_done_callback(lambda future: finish(future.result))
