"""The orchestrator: the asyncio shell that feeds the engine and carries out what it decides.

It owns the clock, the link to the replicas, and the bytes of tensors that are on their way. Everything happens on one event loop.
Events that come in one turn of the loop reach the engine together, so that they can share batches.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, assert_never

import structlog

from dyorc.arrays import Array, apply_views, dtype_of
from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig, LinkConfig
from dyorc.engine.actions import (
    Action,
    AnswerRequest,
    DispatchBatch,
    FailRequest,
    FetchValue,
    ReleaseTensors,
    ReplaceReplica,
    SetTimer,
)
from dyorc.engine.engine import Engine
from dyorc.engine.events import (
    BatchDone,
    BatchFailed,
    Event,
    LoadFailed,
    ReplicaJoined,
    ReplicaLeft,
    RequestArrived,
    RequestCancelled,
    TimerFired,
    ValueFetched,
)
from dyorc.engine.story import Step
from dyorc.errors import InternalError, TransportError
from dyorc.orchestrator.status import StatusBoard
from dyorc.tensor import TensorRef
from dyorc.transport.codec import Frame
from dyorc.transport.messages import (
    BatchFailure,
    BatchReply,
    BatchRequest,
    Hello,
    LoadFailure,
    Loading,
    decode,
    decode_columns,
    encode,
    encode_columns,
)
from dyorc.transport.zmq_link import RouterLink

_log = structlog.get_logger("dyorc.orchestrator")

INLINE_LIMIT_BYTES = 64 * 1024
"""Tensors up to this size ride along with their reference; larger ones are kept aside until the engine releases them."""


class Orchestrator:
    """Runs workflows on replicas.

    Args:
        programs: What is deployed.
        address: Where replicas dial in.
        node: Name of this machine, as replicas on it call it.
        replace: Called with the process id of a replica that was given up, to have it end if it has not.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        address: str,
        engine: EngineConfig,
        link: LinkConfig,
        node: str = "",
        replace: Callable[[int], None] = lambda pid: None,
    ) -> None:
        self._programs = programs
        self._config = engine
        self._engine = self._new_engine()
        self._link = RouterLink(address, link, self._received, self._flush_now, self._give_up)
        self._node = node
        self._events: list[Event] = []
        self._is_flush_due = False
        self._futures: dict[int, asyncio.Future[list[Array]]] = {}
        self._stories: dict[int, list[Step]] = {}
        self._num_requests = 0
        self._tensors: dict[int, Array] = {}
        self._num_tensors = 0
        self._replicas: dict[str, bytes] = {}
        self._hellos: dict[str, Hello] = {}
        self._replace = replace
        self._peers: dict[bytes, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.status = StatusBoard(programs)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._link.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._link.__aexit__(kind, error, trace)
        for future in self._futures.values():
            if not future.done():
                future.set_exception(InternalError("the orchestrator has stopped"))

    @property
    def address(self) -> str:
        """Where replicas dial in."""
        return self._link.address

    @property
    def num_requests(self) -> int:
        """Requests in flight."""
        return len(self._futures)

    def report(self) -> dict[str, Any]:
        """What is going on, as plain values: each program's replicas, queue and cost, and how guessing goes."""
        return {
            "num_requests": len(self._futures),
            "programs": {
                name: status.as_report() | self._engine.scheduler.report(name) for name, status in self.status.programs.items()
            },
            "speculation": self._engine.speculator.report(),
        }

    async def infer(
        self,
        workflow: Workflow,
        inputs: Sequence[Array],
        statics: tuple[StaticValue, ...] = (),
        timeout_s: float | None = None,
        priority: int = 0,
        story: "list[Step] | None" = None,
        started: "Callable[[asyncio.Future[list[Array]]], None] | None" = None,
    ) -> list[Array]:
        """Runs a workflow on inputs that have been checked.

        Cancelling this coroutine cancels the request; so does cancelling the future that `started` is handed.

        Args:
            story: Is filled with what became of the request, step by step (`dyorc.engine.story`).

        Returns:
            The outputs, in the order of the workflow's signature.

        Raises:
            DyOrcError: As the tree in `dyorc.errors` says.
        """
        self._num_requests += 1
        request_id = self._num_requests
        deadline_ns = None if timeout_s is None else time.monotonic_ns() + int(timeout_s * 1e9)
        tensors = tuple(self._keep(array) for array in inputs)
        future = self._futures[request_id] = self._loop.create_future()
        if started is not None:
            started(future)
        if story is not None:
            self._stories[request_id] = story
        self._post(RequestArrived(request_id, workflow, tensors, statics, deadline_ns, priority, story is not None))
        if len(self._futures) == 1:
            self._flush_now()  # there is nothing to share a batch with, so it need not wait for the turn's end
        try:
            return await future
        except asyncio.CancelledError:
            self._post(RequestCancelled(request_id))
            raise
        finally:
            del self._futures[request_id]
            self._stories.pop(request_id, None)

    # Events in

    def _post(self, event: Event) -> None:
        self._events.append(event)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """The turn of the loop is over."""
        self._is_flush_due = False
        self._flush_now()

    def _flush_now(self) -> None:
        """Hands the engine all that has come, and does what it says."""
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
                if isinstance(action, AnswerRequest):
                    self._carry_out(FailRequest(action.request_id, InternalError("the answer could not be put together")))

    def _new_engine(self) -> Engine:
        # A replica may still answer an engine that is gone, of this process or of one before it.
        return Engine(self._config, self._programs, first_batch_id=secrets.randbits(48))

    def _start_over(self) -> None:
        """A bug in the engine: fails what is in flight, and goes on with a new one. Idle replicas say again who they are."""
        self._engine = self._new_engine()
        self._tensors.clear()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(InternalError("the scheduler failed while the request was in flight"))

    def _received(self, peer: bytes, frames: Sequence[Frame]) -> None:
        try:
            message = decode(frames[0])
            if isinstance(message, Hello | Loading | LoadFailure) and message.program not in self.status.programs:
                raise TransportError(f"a replica of program {message.program!r}, which is not deployed here")
            match message:
                case BatchReply():
                    self._post(self._batch_done(message, frames[1:]))
                case BatchFailure():
                    self._post(
                        BatchFailed(message.replica_id, message.batch_id, message.error_type, message.message, message.traceback)
                    )
                case Hello():
                    self._greet(peer, message)
                case LoadFailure():
                    _log.warning("program_load_failed", program=message.program, error=f"{message.error_type}: {message.message}")
                    self.status.load_failed(message.program, f"{message.error_type}: {message.message}")
                    self._post(LoadFailed(message.program, message.error_type, message.message, message.traceback))
                case Loading():
                    self.status.loading(message.program)
                case BatchRequest():
                    raise TransportError("a replica sent a batch")
                case _:
                    assert_never(message)
        except TransportError as error:
            _log.warning("message_refused", error=str(error))

    def _batch_done(self, message: BatchReply, frames: Sequence[Frame]) -> BatchDone | BatchFailed:
        try:
            columns = decode_columns(message.columns, [memoryview(frame).toreadonly() for frame in frames])
            if len({len(column) for column in columns}) > 1:
                raise TransportError(f"outputs of {[len(column) for column in columns]} calls in one batch")
            outputs = [tuple(self._keep(array) for array in row) for row in zip(*columns, strict=True)]
        except TransportError as error:
            return BatchFailed(message.replica_id, message.batch_id, "TransportError", str(error))
        return BatchDone(message.replica_id, message.batch_id, outputs, message.execute_s)

    def _greet(self, peer: bytes, hello: Hello) -> None:
        known = self._replicas.get(hello.replica_id)
        if known is not None and known != peer:
            self._lost(known)  # it came back on a new connection; what was on the old one is gone
        if known != peer:
            _log.info("replica_joined", program=hello.program, replica=hello.replica_id, pid=hello.pid)
            self.status.joined(hello.program, hello.replica_id, hello.pid)
        self._replicas[hello.replica_id] = peer
        self._hellos[hello.replica_id] = hello
        self._peers[peer] = hello.replica_id
        self._post(ReplicaJoined(hello.replica_id, hello.program, hello.node))

    def _give_up(self, peer: bytes, reason: str = "connection lost") -> None:
        """A replica is dead, stopped, cut off or hung. If its process is still there, it has to make room for another."""
        hello = self._hellos.get(self._peers.get(peer, ""))
        self._lost(peer, reason)
        if hello is not None:
            self._replace(hello.pid)

    def _lost(self, peer: bytes, reason: str = "connection lost") -> None:
        replica_id = self._peers.pop(peer, None)
        if replica_id is not None:
            _log.warning("replica_left", replica=replica_id, reason=reason)
            del self._replicas[replica_id]
            del self._hellos[replica_id]
            self.status.left(replica_id)
            self._post(ReplicaLeft(replica_id, reason))

    # Actions out

    def _carry_out(self, action: Action) -> None:
        match action:
            case DispatchBatch():
                self._dispatch(action)
            case AnswerRequest(request_id=request_id, tensors=tensors, story=story):
                if story and request_id in self._stories:
                    self._stories[request_id].extend(story)
                future = self._futures.get(request_id)
                if future is not None and not future.done():
                    future.set_result([self._array(tensor) for tensor in tensors])
            case FailRequest(request_id=request_id, error=error):
                future = self._futures.get(request_id)
                if future is not None and not future.done():
                    future.set_exception(error)
            case ReleaseTensors(tensor_ids=tensor_ids):
                for tensor_id in tensor_ids:
                    self._tensors.pop(tensor_id, None)
            case FetchValue(fetch_id=fetch_id, tensors=tensors):
                self._fetch(fetch_id, tensors)
            case SetTimer(at_ns=at_ns):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_later(max(0.0, (at_ns - time.monotonic_ns()) / 1e9), self._post, TimerFired())
            case ReplaceReplica(replica_id=replica_id, reason=reason):
                self._give_up(self._replicas.get(replica_id, b""), reason)
            case _:
                assert_never(action)

    def _fetch(self, fetch_id: int, tensors: Sequence[TensorRef]) -> None:
        try:
            self._post(ValueFetched(fetch_id, tuple(self._array(tensor) for tensor in tensors)))
        except Exception as error:
            self._post(ValueFetched(fetch_id, error=InternalError(f"a value could not be brought in: {error}")))

    def _dispatch(self, action: DispatchBatch) -> None:
        try:
            columns = [[self._array(tensor) for tensor in column] for column in zip(*action.operands, strict=True)]
            headers, frames = encode_columns(columns)
            message = encode(BatchRequest(action.batch_id, headers, action.statics))
        except Exception as error:  # for example a parameter that is no 64-bit number; the replica has no part in it
            self._post(BatchFailed(action.replica_id, action.batch_id, type(error).__name__, str(error)))
            return
        peer = self._replicas.get(action.replica_id)
        if peer is None or not self._link.send(peer, [message, *frames]):
            self._post(ReplicaLeft(action.replica_id, "not reachable"))

    # Tensors

    def _keep(self, array: Array) -> TensorRef:
        """A reference to an array; large ones are kept aside until they are released."""
        dtype = dtype_of(array)
        if array.nbytes <= INLINE_LIMIT_BYTES:
            return TensorRef(dtype=dtype, shape=array.shape, num_bytes=array.nbytes, node=self._node, data=array)
        self._num_tensors += 1
        self._tensors[self._num_tensors] = array
        return TensorRef(dtype=dtype, shape=array.shape, num_bytes=array.nbytes, node=self._node, tensor_id=self._num_tensors)

    def _array(self, tensor: TensorRef) -> Array:
        array = tensor.data if tensor.data is not None else self._tensors[tensor.tensor_id]
        return apply_views(array, tensor.views) if tensor.views else array
