"""The gateway's end: a `Backend` whose orchestrator is in another process, and may be lost at any time.

A request is kept until it is answered. When its orchestrator is gone, it is submitted again to the next leader, with the time
that is left, unless it may already have had a side effect that must not be repeated. Lives on the gateway's event loop.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Protocol, Self, TypeVar

import msgspec
import structlog

from dyorc.answering.input_identity import InputsIdentity
from dyorc.answering.local_answers import LocalAnswers
from dyorc.answering.part_stream import PartStream
from dyorc.answering.requests_in_flight import RecordedRequest, RequestInFlight
from dyorc.answering.tensor_exchange import Tensors, has_stored
from dyorc.answering.waiting import OnStart, answer_of, parts_of
from dyorc.cluster import packing
from dyorc.cluster.cluster_messages import (
    AnswerMessage,
    AnswerRead,
    CancelRequest,
    ChangeDone,
    ChangeRefused,
    DrainQuery,
    EffectAck,
    EffectAhead,
    FromOrchestrator,
    GatewayBlocksReleased,
    HolderGone,
    OffersUpdate,
    PartMessage,
    PartRead,
    Refresh,
    Refreshed,
    RequestFailed,
    Scale,
    SetLogs,
    StatusUpdate,
)
from dyorc.cluster.control_client import GroupControl
from dyorc.cluster.orchestrator_connection import OrchestratorConnection
from dyorc.cluster.pending_requests import InputRetention, PendingRequest
from dyorc.config import LinkConfig, LogsConfig
from dyorc.core.arrays import Array
from dyorc.core.request import Receiver
from dyorc.engine.actions import AnswerPart, AnswerRequest
from dyorc.engine.events import AnswerTaken, Event, PartTaken, RequestCancelled
from dyorc.engine.request_trace import NEXT_LEADER, TraceNote
from dyorc.engine.tallies import ModelStatistics
from dyorc.errors import DeadlineError, EffectLostError, InternalError, RequestCancelledError, TransportError
from dyorc.leader_election.leader import Leader
from dyorc.models.offers import Offers
from dyorc.models.status import StatusBoard
from dyorc.models.submission import Submission
from dyorc.system.log_throttle import LogThrottle
from dyorc.telemetry.levels import Levels
from dyorc.telemetry.metrics.readings import Readings
from dyorc.transport.column_codec import Frame
from dyorc.transport.error_codec import unpack_error
from dyorc.transport.zmq_security import ClusterKeys

_log = structlog.get_logger("dyorc.gateway")

T = TypeVar("T")

_LOOK_S = 0.2
_REDIAL_S = 0.05
_REFRESH_S = 1.0
_LATE_NS = 1_000_000_000
"""How long after its deadline a request fails here, if the orchestrator sends nothing."""
_EFFECT_LOST = (
    "the orchestrator was lost after the request had reached a program with an effect; it may or may not have happened, and the "
    "request is not repeated"
)
_ANSWER_LOST = (
    "the orchestrator was lost with an answer that had not been read; its effects have happened, and it is not repeated"
)


class LeaderSource(Protocol):
    """Finds the orchestrator that leads a group: `dyorc.leader_election.leader_discovery.LeaderDiscovery`."""

    group: str
    leader: Leader | None

    def look(self) -> None:
        """Looks at once: the known leader does not answer."""
        ...

    async def newer(self, than: int = 0) -> Leader:
        """Waits for a leader with a fence higher than `than`."""
        ...


class RemoteBackend:
    """Runs requests on the orchestrator that leads a group, while entered.

    Args:
        leaders: Finds that orchestrator.
        tensors: This gateway's arena, and its access to those of others; open.
        keys: The cluster's; None only if no link leaves this machine.

    Attributes:
        offers: The group's offers.
        default_timeout_s: The time limit of requests that name none, as the leader says.
        tensors: As given.
        status: The states of the group's programs.
        control: Changes what is deployed there, and how many replicas there are.
        leader: The present leader, or the last one.
        fence: The highest that was seen.
    """

    def __init__(self, leaders: LeaderSource, tensors: Tensors, link: LinkConfig, keys: ClusterKeys | None = None) -> None:
        self.offers = Offers(unheard=[leaders.group])
        self.tensors = tensors
        self.status = StatusBoard((), stays_ready=True)
        self.status.lacks(leaders.group, _without_leader(leaders.group))
        self.control = GroupControl(leaders.group, self._send, lambda: self.is_connected)
        self.leader: Leader | None = None
        self.fence = 0
        self._leaders = leaders
        self._link = link
        self._keys = keys
        self._answers = LocalAnswers(tensors, self._post)
        self._retention = InputRetention(tensors.exchange.arena.free)
        self._pending: dict[int, PendingRequest] = {}
        self._numbers = count(1 + packing.next_number_range())
        self._connection: OrchestratorConnection | None = None
        self._generation = 0
        self.default_timeout_s = 300.0
        self._refreshed = Refreshed(0, {}, {}, {}, {})
        self._refreshes: dict[int, asyncio.Future[None]] = {}
        self._logs: LogsConfig | None = None
        self._lost = LogThrottle(_log, "orchestrator_lost")
        self._unreached = LogThrottle(_log, "orchestrator_not_reached")
        self._logged_fence = 0
        """The fence of the leader whose joining was logged since the last loss was logged."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._following = asyncio.create_task(self._follow())
        self._watching = asyncio.create_task(self._watch_deadlines())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in (self._following, self._watching):
            task.cancel()
        await asyncio.wait([self._following, self._watching])
        await self._answers.close()
        if self._connection is not None:
            self._connection.close()

    async def finish_reading(self, timeout_s: float) -> None:
        """Waits at most `timeout_s` until nothing reads the inputs of answered requests in this process's arena: effects may need
        them. Call it when no more requests come."""
        give_up_s = time.monotonic() + timeout_s
        while self.is_connected and self._retention.is_read and time.monotonic() < give_up_s:  # noqa: ASYNC110 (once, at the end)
            await asyncio.sleep(_REDIAL_S)

    @property
    def is_connected(self) -> bool:
        """Whether there is an orchestrator now."""
        return self._connection is not None

    @property
    def group(self) -> str:
        """The group whose leader it follows."""
        return self._leaders.group

    # Requests

    def submit(self, submission: Submission, receiver: Receiver[Any], stream: PartStream | None = None) -> int:
        """Runs a workflow; see `Backend.submit`. Without an orchestrator, the request waits for one."""
        refs = self.tensors.keep_all(submission.inputs, submission.body)
        request_id = next(self._numbers)
        now_ns = time.monotonic_ns()
        deadline_ns = submission.terms.deadline_ns or now_ns + int(self.default_timeout_s * 1e9)
        in_flight = RequestInFlight(receiver, InputsIdentity("", (), ()), RecordedRequest.begin(request_id, submission), stream)
        self._answers.open(request_id, in_flight)
        pending = self._pending[request_id] = PendingRequest(submission, in_flight, refs, deadline_ns)
        self._retention.keep(refs)
        self._submit(request_id, pending)
        return request_id

    def cancel(self, request_id: int) -> bool:
        """Gives a request up; see `Backend.cancel`."""
        in_flight = self._answers.give_up(request_id)
        if in_flight is None:
            return False
        self._send(CancelRequest(request_id))
        self._forget(request_id)
        if in_flight.recorded is not None:
            in_flight.recorded.end(RequestCancelledError("the request was cancelled"))
        return True

    async def infer(self, submission: Submission, *, take: Callable[[list[Array]], T], started: OnStart | None = None) -> T:
        """Runs a workflow and returns its answer; see `Backend.infer`."""
        return await answer_of(self, submission, take, started)

    def stream(
        self, submission: Submission, *, take: Callable[[list[Array]], T], started: OnStart | None = None
    ) -> AsyncGenerator[list[T]]:
        """Runs a workflow and yields its parts; see `Backend.stream`. A change of orchestrators does not interrupt them."""
        is_streaming = any(offer.is_streaming for offer in self.offers.all if offer.key == submission.model)
        return parts_of(self, self._answers if is_streaming else None, submission, take, started)

    def _submit(self, request_id: int, pending: PendingRequest) -> None:
        """Submits a request, for the first time or again. Without an orchestrator, `_join` does that once there is one."""
        if self._connection is None:
            return
        pending.generation, pending.is_answered = self._generation, False
        pending.parts.clear()
        headers, frames, _ = self.tensors.pack([pending.refs] if pending.refs else [])
        try:
            self._send(pending.as_message(request_id, headers), frames)
        except (OverflowError, msgspec.MsgspecError) as error:  # a parameter beyond 64 bits
            self._fail(request_id, InternalError(f"the request cannot be sent: {error}"))

    def _forget(self, request_id: int) -> None:
        pending = self._pending.pop(request_id, None)
        if pending is not None:
            self._retention.end_request(pending.refs, was_sent=pending.generation != 0)

    def _fail(self, request_id: int, error: Exception) -> None:
        self._forget(request_id)
        self._answers.fail(request_id, error)

    def _post(self, event: Event) -> None:
        """Handles what `LocalAnswers` reports about tensors that were read."""
        match event:
            case AnswerTaken(request_id=request_id, lost=lost):
                pending = self._pending.get(request_id)
                if pending is None:
                    return
                is_current = self.is_connected and pending.generation == self._generation
                if is_current:
                    self._send(AnswerRead(request_id, tuple(lost)))
                if not lost:
                    self._forget(request_id)
                elif is_current:
                    pending.is_answered = False
                elif pending.has_effect:
                    self._fail(request_id, EffectLostError(_ANSWER_LOST))
                else:
                    pending.is_answered = False
                    self._retention.resubmit(pending.refs)
                    self._submit(request_id, pending)
            case PartTaken(request_id=request_id, index=index, lost=lost):
                pending = self._pending.get(request_id)
                if pending is not None and index in pending.parts:
                    pending.parts.discard(index)
                    self._send(PartRead(request_id, index, tuple(lost)))
            case RequestCancelled(request_id=request_id):
                self._send(CancelRequest(request_id))
                self._forget(request_id)
            case _:
                pass

    def _send(self, message: Any, frames: Sequence[Frame] = ()) -> None:
        if self._connection is not None:
            self._connection.send(message, frames)

    # From the orchestrator

    def _receive(self, leader: Leader, message: FromOrchestrator, frames: Sequence[Frame]) -> None:
        """Handles a message, unless another orchestrator is known to lead by now."""
        if self._is_outranked(leader):
            return
        match message:
            case AnswerMessage(request_id=request_id):
                self._take_answer(request_id, message, frames)
            case PartMessage(request_id=request_id):
                self._take_part(request_id, message, frames)
            case RequestFailed(request_id=request_id):
                self._fill_trace(request_id, message.story)
                self._fail(request_id, unpack_error(message.code, message.text, message.facts))
            case GatewayBlocksReleased(blocks=blocks):
                self._retention.release(blocks)
            case EffectAhead(number=number, requests=requests):
                for request_id in requests:
                    if (pending := self._pending.get(request_id)) is not None:
                        pending.announce_effect()
                self._send(EffectAck(number))
            case OffersUpdate(offers=offers, deployed=deployed):
                self.control.report(deployed)
                self.offers.change(offers)
            case ChangeDone() | ChangeRefused() | DrainQuery():
                self.control.receive(message)
            case StatusUpdate(programs=programs):
                self.status.mirror(programs)
                self.status.lacks(self._leaders.group, "")  # only now is it known what the group serves
            case Refreshed(number=number):
                self._refreshed = message
                if (waiting := self._refreshes.pop(number, None)) is not None and not waiting.done():
                    waiting.set_result(None)
            case HolderGone(holder_id=holder_id):
                self.tensors.leave(holder_id)
            case _:
                raise TransportError(f"the orchestrator sent {type(message).__name__}")

    def _take_answer(self, request_id: int, message: AnswerMessage, frames: Sequence[Frame]) -> None:
        pending = self._pending.get(request_id)
        if pending is None:
            if message.effects_follow:  # the answer came before, or nobody wants it
                self._send(AnswerRead(request_id))
            return
        refs = self.tensors.unpack(message.columns, frames, message.holders)
        self._fill_trace(request_id, message.story)
        pending.is_answered = True
        if not has_stored(refs):
            self._forget(request_id)
            if message.effects_follow:
                self._send(AnswerRead(request_id))
        self._answers.answer(AnswerRequest(request_id, refs))

    def _take_part(self, request_id: int, message: PartMessage, frames: Sequence[Frame]) -> None:
        pending = self._pending.get(request_id)
        if pending is None or pending.in_flight.stream is None:
            return
        if message.index < pending.in_flight.stream.num_taken:  # the consumer has it from an earlier orchestrator
            self._send(PartRead(request_id, message.index))
            return
        pending.parts.add(message.index)
        refs = self.tensors.unpack(message.columns, frames, message.holders)
        self._answers.part(AnswerPart(request_id, message.index, refs))

    def _fill_trace(self, request_id: int, values: dict[str, Any] | None) -> None:
        pending = self._pending.get(request_id)
        connection = self._connection
        if values is None or pending is None or pending.in_flight.recorded is None or connection is None:
            return
        story = pending.in_flight.recorded.story
        packing.unpack_trace_into(story, values, connection.shift_ns, connection.numbers_from)
        if pending.moved_ns:
            story.notes = [TraceNote(pending.moved_ns, NEXT_LEADER), *story.notes]

    # Leaders that come and go

    async def _follow(self) -> None:
        while True:
            leader = self._leaders.leader
            if leader is None or leader.fence < self.fence:
                leader = await self._leaders.newer(max(0, self.fence - 1))
            connection = OrchestratorConnection(leader, self.tensors.exchange.holder, partial(self._receive, leader))
            try:
                welcome = await connection.open(self._link, self._keys, self.fence)
                if welcome.fence < self.fence:
                    raise TransportError(f"an orchestrator has fence {welcome.fence}, this gateway knows {self.fence}")
                if self._is_outranked(leader):
                    raise TransportError(f"the next leader was found before the one with fence {leader.fence} had answered")
                self.leader = leader
                self._join(connection, welcome.fence, welcome.default_timeout_s)
                await self._stay(connection, leader)
                if connection.is_lost.is_set() and self._lost.report(
                    group=leader.group, fence=leader.fence, reason=connection.reason
                ):
                    self._logged_fence = 0
            except (TransportError, TimeoutError) as error:
                self._unreached.report(group=leader.group, fence=leader.fence, error=str(error) or "it does not answer in time")
            finally:
                connection.close()
                self._leave()
            self._leaders.look()
            await asyncio.sleep(_REDIAL_S)

    def _join(self, connection: OrchestratorConnection, fence: int, default_timeout_s: float) -> None:
        """Follows a leader: submits to it all that is unanswered."""
        self.fence = fence
        self._connection = connection
        self._generation += 1
        self.default_timeout_s = default_timeout_s
        if self._logs is not None:
            self.set_logs(self._logs)
        self._unreached.end()
        if fence != self._logged_fence:
            self._logged_fence = fence
            _log.info("orchestrator_joined", fence=fence, num_requests=len(self._pending))
        for request_id, pending in list(self._pending.items()):
            if not pending.is_answered:
                pending.moved_ns = time.monotonic_ns()
                self._retention.resubmit(pending.refs)
                self._submit(request_id, pending)

    async def _stay(self, connection: OrchestratorConnection, leader: Leader) -> None:
        """Returns once the connection is gone, or another orchestrator leads."""
        while not connection.is_lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await connection.is_lost.wait()
            if self._is_outranked(leader):
                return

    def _is_outranked(self, leader: Leader) -> bool:
        """Returns whether another orchestrator is known to lead with a higher fence."""
        latest = self._leaders.leader
        return latest is not None and latest.fence > leader.fence

    def _leave(self) -> None:
        """Leaves an orchestrator, and fails the requests that may have had an effect there."""
        if self._connection is None:
            return
        self._connection = None
        self.status.lose(_without_leader(self._leaders.group))
        for request_id, pending in list(self._pending.items()):
            if pending.in_flight.stream is not None:
                pending.in_flight.stream.start_over()
            if pending.has_effect and not pending.is_answered:
                self._fail(request_id, EffectLostError(_EFFECT_LOST))
        self._retention.lose_orchestrator()
        self.control.lose()
        for waiting in self._refreshes.values():
            waiting.cancel()
        self._refreshes.clear()

    async def _watch_deadlines(self) -> None:
        """Fails requests that no orchestrator has answered in time."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now_ns = time.monotonic_ns() - (_LATE_NS if self.is_connected else 0)
            for request_id, pending in list(self._pending.items()):
                if pending.deadline_ns < now_ns and not pending.is_answered:
                    self._send(CancelRequest(request_id))
                    self._fail(request_id, DeadlineError(f"the deadline has passed: {self._why_unanswered()}"))

    def _why_unanswered(self) -> str:
        group = self._leaders.group
        return f"the orchestrator of group {group!r} has not answered" if self.is_connected else _without_leader(group)

    # Figures

    async def refresh(self) -> None:
        """Fetches the orchestrator's current figures. Without an orchestrator, the last figures stay."""
        if self._connection is None:
            return
        number = next(self._numbers)
        waiting = self._refreshes[number] = self._loop.create_future()
        names = {offer.name for offer in self.offers.all} | set(self.status.programs)
        self._send(Refresh(number, tuple(sorted(names))))
        await asyncio.wait([waiting], timeout=_REFRESH_S)
        self._refreshes.pop(number, None)

    def statistics(self, name: str) -> ModelStatistics:
        """Returns the statistics of a model, as of the last `refresh`."""
        return msgspec.convert(self._refreshed.statistics.get(name, {}), ModelStatistics, strict=False)

    def report(self) -> dict[str, Any]:
        """Returns the orchestrator's report, as of the last `refresh`, with this gateway's own requests."""
        report_values = {"programs": {}, "speculation": {}, "tensors": {}, "link": {}} | self._refreshed.report
        own = {"num_requests": self._answers.num_requests, "is_connected": self.is_connected, "fence": self.fence}
        return report_values | own

    def levels(self) -> Levels:
        """Returns the levels, as of the last `refresh`."""
        return msgspec.convert(self._refreshed.levels, Levels, strict=False)

    def scaling(self) -> dict[str, Any]:
        """Returns the scaling figures, as of the last `refresh`."""
        return self._refreshed.scaling

    def measure(self, readings: Readings) -> None:
        """Adds nothing: the orchestrator has its own metrics."""

    def set_logs(self, config: LogsConfig) -> None:
        """Applies log settings to the replicas of this orchestrator and of its successors."""
        self._logs = config
        self._send(SetLogs(config.model_dump(mode="json")))

    async def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Sets how many replicas of a program the orchestrator keeps; see `Backend.scale`."""
        await self.control.request(Scale(self.control.next_number(), program, num_warm, num_parked))


def _without_leader(group: str) -> str:
    return f"group {group!r} has no leader"
