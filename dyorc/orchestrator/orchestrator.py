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
from dyorc.orchestrator.fleet import Fleet
from dyorc.orchestrator.identity import InputsIdentity
from dyorc.orchestrator.part_stream import PartStream, ReadPart
from dyorc.orchestrator.step_watch import StepWatch
from dyorc.orchestrator.taking import Taking, is_large
from dyorc.orchestrator.tensors import Tensors, carried, has_stored
from dyorc.status import StatusBoard
from dyorc.tensor import TensorRef
from dyorc.terms import Terms
from dyorc.transport.body import Body
from dyorc.transport.inbox import InputsLostError

_log = structlog.get_logger("dyorc.orchestrator")

T = TypeVar("T")

_PLAIN = Terms()


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
        self._taking = Taking()
        self._events: list[Event] = []
        self._is_flush_due = False
        self._futures: dict[int, asyncio.Future[list[Array]]] = {}
        self._untaken: dict[int, Sequence[TensorRef]] = {}
        self._streams: dict[int, PartStream] = {}
        self._stories: dict[int, list[Step]] = {}
        self._num_requests = 0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stack.enter_context(self._watch)
            stack.enter_context(self.tensors.exchange)
            self.tensors.open()
            stack.callback(self.tensors.close)
            stack.callback(self._taking.close)
            await stack.enter_async_context(self._fleet.running(self._post, self._flush_now))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._stack.aclose()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(InternalError("the orchestrator has stopped"))

    @property
    def num_requests(self) -> int:
        """Requests in flight."""
        return len(self._futures)

    def report(self) -> dict[str, Any]:
        """Returns the current state as plain values: each program's replicas, queue and cost, and how guessing goes."""
        return {
            "num_requests": len(self._futures),
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

    async def infer(
        self,
        workflow: Workflow,
        inputs: Sequence[Array],
        statics: tuple[StaticValue, ...] = (),
        terms: Terms = _PLAIN,
        *,
        story: "list[Step] | None" = None,
        started: "Callable[[asyncio.Future[list[Array]]], None] | None" = None,
        body: Body | None = None,
        take: Callable[[list[Array]], T] = cast(Any, own_arrays),  # noqa: B008
    ) -> T:
        """Runs a workflow on checked inputs.

        Cancelling this coroutine cancels the request; so does cancelling the future passed to `started`.

        Args:
            story: Filled with the steps of the request (`dyorc.engine.story`), if its terms ask for that.
            body: Where inputs lie already, if anywhere. The caller drops it.
            take: Turns the outputs, in the order of the workflow's signature, into what is returned. They may be views of shared
                memory that is reused once `take` returns. It is called again if their holder has taken them away meanwhile; on a
                thread if they are large.

        Returns:
            What `take` returns; by default the outputs themselves.

        Raises:
            DyOrcError: See the tree in `dyorc.errors`.
        """
        tensors = self.tensors.keep_all(inputs, body)
        request_id, future = self._open(started, story)
        identity = InputsIdentity(workflow.name, inputs, statics)
        self._arrive(RequestArrived(request_id, workflow, tensors, statics, terms, identity))
        try:
            while True:
                arrays = await future
                stored = self._untaken.get(request_id)
                taken = await self._taking.take(take, arrays) if is_large(arrays) else take(arrays)
                lost = None if stored is None else self.tensors.lost_of(stored)
                if not lost:
                    return taken
                if self._untaken.pop(request_id, None) is None:  # it started over meanwhile
                    raise InternalError("the scheduler failed while the request was in flight")
                future = self._futures[request_id] = self._loop.create_future()
                if started is not None:
                    started(future)
                self._post(AnswerTaken(request_id, lost))
        except asyncio.CancelledError:
            self._post(RequestCancelled(request_id))
            raise
        finally:
            identity.close()
            del self._futures[request_id]
            self._stories.pop(request_id, None)
            if self._untaken.pop(request_id, None) is not None:
                self._post(AnswerTaken(request_id))

    async def stream(
        self,
        workflow: Workflow,
        inputs: Sequence[Array],
        statics: tuple[StaticValue, ...] = (),
        terms: Terms = _PLAIN,
        *,
        story: "list[Step] | None" = None,
        started: "Callable[[asyncio.Future[list[Array]]], None] | None" = None,
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
        tensors = self.tensors.keep_all(inputs, body)
        request_id, future = self._open(started, story)
        stream = self._streams[request_id] = PartStream(future)
        identity = InputsIdentity(workflow.name, inputs, statics)
        self._arrive(RequestArrived(request_id, workflow, tensors, statics, terms, identity))
        try:
            while parts := await stream.next_parts():
                taken = await self._take_parts(request_id, stream, parts, take)
                if taken:
                    yield taken
                for part in parts[: len(taken)]:
                    self._post(PartTaken(request_id, part.index))
        finally:
            identity.close()
            del self._futures[request_id], self._streams[request_id]
            self._stories.pop(request_id, None)
            if not stream.is_over:
                self._post(RequestCancelled(request_id))

    async def _take_parts(
        self, request_id: int, stream: PartStream, parts: Sequence[ReadPart], take: Callable[[list[Array]], T]
    ) -> list[T]:
        """Applies `take` to parts, up to the first that turns out to be lost, which will come again."""
        taken: list[T] = []
        for part in parts:
            value = await self._taking.take(take, part.arrays) if is_large(part.arrays) else take(part.arrays)
            if lost := self.tensors.lost_of(part.tensors):
                stream.lose(part)
                self._post(PartTaken(request_id, part.index, lost))
                break
            stream.take(part)
            taken.append(value)
        return taken

    def _open(
        self, started: "Callable[[asyncio.Future[list[Array]]], None] | None", story: "list[Step] | None"
    ) -> "tuple[int, asyncio.Future[list[Array]]]":
        """Returns the number of a new request, and the future of its end."""
        self._num_requests += 1
        request_id = self._num_requests
        future = self._futures[request_id] = self._loop.create_future()
        if started is not None:
            started(future)
        if story is not None:
            self._stories[request_id] = story
        return request_id, future

    # Events in

    def _arrive(self, event: RequestArrived) -> None:
        self._post(event)
        if len(self._futures) == 1:
            self._flush_now()  # there is nothing to share a batch with, so do not wait for the turn's end

    def _post(self, event: Event) -> None:
        self._events.append(event)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Ends the turn of the loop."""
        self._is_flush_due = False
        self._flush_now()

    def _flush_now(self) -> None:
        """Hands the engine all events, and does what it says."""
        if not self._events:
            return
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

    def _new_engine(self) -> Engine:
        return Engine(self._config, self._programs, self._host)

    def _start_over(self) -> None:
        """The engine has a bug: fails what is in flight, and starts a new one. Idle replicas announce themselves again."""
        self._engine.count_lost()
        self._engine = self._new_engine()
        self._fleet.start_over()
        self._untaken.clear()
        self.tensors.free_all()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(InternalError("the scheduler failed while the request was in flight"))

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
                future = self._futures.get(request_id)
                if future is not None and not future.done():
                    future.set_exception(error)
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

    def _answer(self, action: AnswerRequest) -> None:
        request_id = action.request_id
        if action.story and request_id in self._stories:
            self._stories[request_id].extend(action.story)
        if has_stored(action.tensors):
            self._answer_stored(request_id, action.tensors)
            return
        future = self._futures.get(request_id)
        if future is not None and not future.done():
            future.set_result([carried(tensor) for tensor in action.tensors])

    def _answer_stored(self, request_id: int, tensors: Sequence[TensorRef]) -> None:
        """Hands over an answer whose bytes the engine keeps until they are taken."""

        def hand_over(arrays: list[Array]) -> None:
            future = self._futures.get(request_id)
            if future is None or future.done():
                self._post(AnswerTaken(request_id))
                return
            self._untaken[request_id] = tensors
            future.set_result(arrays)

        def fail(error: Exception) -> None:
            if isinstance(error, InputsLostError):
                self._post(AnswerTaken(request_id, error.blocks))
                return
            self._carry_out(FailRequest(request_id, InternalError(f"the answer could not be put together: {error}")))
            self._post(AnswerTaken(request_id))

        self._read(tensors, hand_over, fail)

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
