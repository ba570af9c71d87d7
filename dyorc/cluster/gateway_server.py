"""The orchestrator's end for gateways: takes their requests, and sends the answers.

Tensors pass as references: the bytes stay where they are, in a gateway's arena or a replica's, and are read there.
Lives on the orchestrator's event loop.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

import msgspec
import structlog
from msgspec.structs import replace

from dyorc.answering.tensor_exchange import OWN, has_stored
from dyorc.cluster import packing
from dyorc.cluster.cluster_messages import (
    AnswerMessage,
    AnswerRead,
    CancelRequest,
    Change,
    DrainReply,
    EffectAck,
    FromGateway,
    FromOrchestrator,
    GatewayBlocksReleased,
    GatewayHello,
    HolderGone,
    OffersUpdate,
    PartMessage,
    PartRead,
    Refresh,
    Refreshed,
    Refused,
    RequestFailed,
    Scale,
    SetLogs,
    StatusUpdate,
    SubmitRequest,
    Welcome,
    decode_from_gateway,
    encode,
)
from dyorc.cluster.control_server import ControlServer
from dyorc.cluster.effect_announcements import EffectAnnouncements, SuspendedRequests
from dyorc.cluster.gateway_sessions import GatewaySession, GatewaySessions, RemoteRequest, identity_of
from dyorc.config import LinkConfig
from dyorc.core.request import Terms
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import AnswerPart, AnswerRequest
from dyorc.engine.events import AnswerTaken, PartTaken, RequestArrived
from dyorc.engine.request_trace import RequestTrace
from dyorc.errors import NotReadyError, TransportError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.models.offers import ModelKey
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.system.log_throttle import LogThrottle
from dyorc.telemetry.histories.history_recorder import HistoryRecorder
from dyorc.transport.column_codec import ColumnHeader, Frame
from dyorc.transport.error_codec import pack_error
from dyorc.transport.inbox import InputsLostError
from dyorc.transport.link import OrchestratorEnd, listen
from dyorc.transport.peer_process import LinkCallbacks, PeerEnding
from dyorc.transport.tiers import TensorHolder
from dyorc.transport.zmq_security import ClusterKeys

_log = structlog.get_logger("dyorc.orchestrator")

_SHOW_AGAIN_S = 1.0
_DRAINED_S = 0.02
"""How often to check whether everything is answered."""
_ASK_AGAIN_S = 0.02


_WITHOUT_RIVALS = LeaderTerm(
    group="default", fence=1, is_sure=lambda: True, report_fence=lambda fence: None, is_lost=lambda: False
)
"""The lead of an orchestrator that is alone."""


class GatewayServer:
    """Listens to gateways while entered; a `RequestOwner` for all of them.

    Args:
        orchestrator: Runs their requests; entered.
        address: Where to listen.
        default_timeout_s: The time limit of requests that name none (`EngineConfig.request_timeout_s`).
        keys: The cluster's; None only if no other machine can reach the address.
        lead: This process's lead of the group; None if there are no other orchestrators.
        histories: Records the histories of requests; None: nothing does.

    Attributes:
        control: Carries out changes of deployed versions and of the number of replicas.
    """

    _link: OrchestratorEnd

    def __init__(
        self, orchestrator: Orchestrator, address: str, link: LinkConfig, *, default_timeout_s: float = 300.0,
        keys: ClusterKeys | None = None, lead: LeaderTerm | None = None, histories: HistoryRecorder | None = None,
    ) -> None:  # fmt: skip
        self._orchestrator = orchestrator
        self._tensors = orchestrator.tensors
        self._lead = lead or _WITHOUT_RIVALS
        self._histories = histories
        self._default_timeout_s = default_timeout_s
        callbacks = LinkCallbacks(self._receive, lambda: None, self._connection_lost)
        self._link = listen(address, link, callbacks, keys=keys)
        self._sessions = GatewaySessions()
        self._is_draining = False
        self._suspended = SuspendedRequests(self._free_later)
        self._effects = EffectAnnouncements(self._send, self._suspended, self._forget, self._ask_again)
        self.control = ControlServer(self._send, self._sessions.all, orchestrator.scale)
        self._sent_states: dict[str, Any] = {}
        self._name = f"orchestrator-{secrets.token_hex(4)}"
        self._freed: dict[bytes, list[int]] = {}
        self._refused = LogThrottle(_log, "message_refused")
        self._unsent: list[Callable[[], object]] = []

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._link)
            self._orchestrator.offers.watch(self._send_offers)
            self._showing = asyncio.create_task(self._send_states_forever())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Hangs up. Gateways submit what is unanswered to the next orchestrator."""
        self._showing.cancel()
        for session in self._sessions.all():
            self._drop_session(session)
        await self._stack.aclose()

    async def drain(self, timeout_s: float) -> None:
        """Takes no new requests, and waits at most `timeout_s` for the answers and effects of the present ones, and until the
        answers have been sent. Gateways keep new requests for its successor.
        """
        self._is_draining = True
        give_up_s = time.monotonic() + timeout_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._owes_answers():  # noqa: ASYNC110 (an event would cost each request)
                    await asyncio.sleep(_DRAINED_S)
        await self._orchestrator.finish_effects(give_up_s - time.monotonic())

    def _owes_answers(self) -> bool:
        """Returns whether a gateway waits for an answer, be it one that is made and must not be sent before the lead is sure."""
        is_held_back = bool(self._unsent) and not self._lead.is_lost()
        return is_held_back or any(session.numbers for session in self._sessions.all())

    @property
    def address(self) -> str:
        """Where gateways dial in, once entered."""
        return self._link.address

    @property
    def num_gateways(self) -> int:
        """Gateways that are connected."""
        return len(self._sessions.all())

    # From gateways

    def _receive(self, peer: bytes, frames: Sequence[Frame]) -> None:
        try:
            message = decode_from_gateway(frames[0])
            session = self._sessions.of_peer(peer)
            if isinstance(message, GatewayHello):
                self._greet(peer, message)
            elif session is None:
                raise TransportError(f"an unregistered gateway sent {type(message).__name__}, expected GatewayHello")
            else:
                self._handle(session, message, frames[1:])
        except TransportError as error:
            self._refused.report(error=str(error))
            self._link.send(peer, [encode(Refused(str(error)))])

    def _greet(self, peer: bytes, hello: GatewayHello) -> None:
        lead = self._lead
        if hello.fence > lead.fence:
            lead.report_fence(hello.fence)
            raise TransportError(f"a gateway knows fence {hello.fence}, this orchestrator has {lead.fence}")
        if not hello.gateway_id or hello.holder.holder_id != hello.gateway_id:
            raise TransportError(f"gateway {hello.gateway_id!r} says it holds tensors as {hello.holder.holder_id!r}")
        if (known := self._sessions.of_peer(peer) or self._sessions.named(hello.gateway_id)) is not None:
            self._drop_session(known)
        session = self._sessions.add(peer, hello)
        self._orchestrator.request_owners.add_holder(hello.holder, lambda block: self._release_block(session, block))
        self._send(session, Welcome(lead.group, lead.fence, self._default_timeout_s, time.monotonic_ns()))
        self._send(session, OffersUpdate(self._orchestrator.offers.all, self.control.report()))
        self._send(session, StatusUpdate(self._orchestrator.status.as_values()))
        _log.info("gateway_joined", gateway=hello.gateway_id)

    def _handle(self, session: GatewaySession, message: FromGateway, frames: Sequence[Frame]) -> None:
        match message:
            case SubmitRequest():
                self._start(session, message, frames)
            case CancelRequest(request_id=request_id):
                self._end(session, request_id, self._orchestrator.request_owners.give_up)
            case AnswerRead(request_id=request_id, lost=lost):
                number = session.numbers.get(request_id)
                if number is not None:
                    self._orchestrator.request_owners.tell(AnswerTaken(number, self._ours(lost)))
                    if not lost:
                        self._end(session, request_id, self._orchestrator.request_owners.end)
            case PartRead(request_id=request_id, index=index, lost=lost):
                number = session.numbers.get(request_id)
                if number is not None:
                    self._orchestrator.request_owners.tell(PartTaken(number, index, self._ours(lost)))
            case EffectAck(number=number):
                self._when_sure(lambda: self._effects.acknowledge(session, number))
            case Refresh():
                self._refresh(session, message)
            case Scale() | Change():
                self.control.start_change(session, message)
            case DrainReply(number=number):
                self.control.confirm_drained(session, number)
            case SetLogs():
                self._orchestrator.set_logs(message.unpack())
            case _:
                raise TransportError(f"a gateway sent {type(message).__name__} a second time")

    def _start(self, session: GatewaySession, submit: SubmitRequest, frames: Sequence[Frame]) -> None:
        """Starts a request. If that is not possible, sends the error to its gateway."""
        if self._is_draining:
            return
        now_ns = time.monotonic_ns()
        try:
            workflow = self._orchestrator.workflow(ModelKey(submit.model, submit.version))
            inputs = self._inputs(session, submit, frames, len(workflow.signature.inputs))
        except (NotReadyError, TransportError) as error:
            self._send(session, _failed(submit.request_id, error))
            return
        number = self._orchestrator.request_owners.next_number()
        deadline_ns = None if submit.timeout_s is None else now_ns + int(submit.timeout_s * 1e9)
        terms = Terms(
            deadline_ns=deadline_ns, priority=submit.priority, tenant=submit.tenant, weight=submit.weight,
            waits_for_effects=submit.waits_for_effects, is_shadow=submit.is_shadow,
        )  # fmt: skip
        identity = identity_of(workflow.name, inputs, submit.statics, self._tensors)
        history = None
        if self._histories is not None and self._histories.draws():
            history = self._histories.keeper(submit.facts.request_id, terms)
        story = RequestTrace(number, now_ns, submit.span) if submit.is_recorded or history is not None else None
        arrived = RequestArrived(number, workflow, inputs, submit.statics, terms, identity, story, lambda: submit.facts, history)
        self._run(RemoteRequest(session, submit.request_id, arrived, identity, submit.is_recorded, history))

    def _run(self, request: RemoteRequest) -> None:
        self._sessions.add_request(request)
        self._orchestrator.request_owners.ask(request.arrived, self)

    def _forget(self, request: RemoteRequest) -> None:
        """Removes a suspended request from the engine; its gateway still wants it."""
        if request.history is not None:
            request.history.withdraw()
        self._orchestrator.request_owners.give_up(request.number)

    def _ask_again(self, request: RemoteRequest) -> None:
        """Runs a suspended request from the beginning."""
        before = request.arrived
        number = self._orchestrator.request_owners.next_number()
        story = None if before.story is None else RequestTrace(number, before.story.started_ns, before.story.span)
        identity = identity_of(before.workflow.name, before.inputs, before.statics, self._tensors)
        self._sessions.end_request(request.session, request.request_id)
        history = None if request.history is None else request.history.anew()
        arrived = replace(before, request_id=number, identity=identity, story=story, keeper=history)
        self._run(RemoteRequest(request.session, request.request_id, arrived, identity, request.is_explained, history))

    def _inputs(
        self, session: GatewaySession, submit: SubmitRequest, frames: Sequence[Frame], num_inputs: int
    ) -> tuple[TensorRef, ...]:
        columns = self._tensors.refs(session.gateway_id, submit.columns, frames) if submit.columns else [()]
        if len(columns) != 1 or len(columns[0]) != num_inputs:
            raise TransportError(f"a request for {submit.model!r} has {len(submit.columns)} inputs, expected {num_inputs}")
        return columns[0]

    def _end(self, session: GatewaySession, request_id: int, end: Callable[[int], None]) -> None:
        request = self._sessions.end_request(session, request_id)
        if request is not None:
            end(request.number)
            self._suspended.drop(request)

    def _refresh(self, session: GatewaySession, request: Refresh) -> None:
        orchestrator = self._orchestrator
        self._send(
            session,
            Refreshed(
                request.number,
                orchestrator.report(),
                msgspec.to_builtins(orchestrator.levels()),
                orchestrator.scaling(),
                {name: msgspec.to_builtins(orchestrator.statistics(name), str_keys=True) for name in request.names},
            ),
        )

    # To gateways: a `RequestOwner`

    def answer(self, action: AnswerRequest) -> None:
        """Sends an answer; its bytes stay where they are until its gateway has read them.

        Effects that follow are announced like others until the gateway says that it has the answer. If it goes before, it may
        submit the request again, so they must not happen.
        """
        request = self._sessions.request_of(action.request_id)
        is_stored = has_stored(action.tensors)
        if request is None:
            if is_stored:
                self._orchestrator.request_owners.tell(AnswerTaken(action.request_id))
            return
        try:
            headers, frames, holders = self._pack(action.tensors)
        except InputsLostError as error:
            self._orchestrator.request_owners.tell(AnswerTaken(action.request_id, error.blocks))
            return
        story = None if request.story is None else packing.pack_trace(request.story)
        if not is_stored and not action.effects_follow:
            self._end(request.session, request.request_id, self._orchestrator.request_owners.end)
        message = AnswerMessage(request.request_id, tuple(headers), holders, story, action.effects_follow)
        self._send(request.session, message, frames)

    def part(self, action: AnswerPart) -> None:
        """Sends a part of an answer."""
        request = self._sessions.request_of(action.request_id)
        if request is None:
            return
        try:
            headers, frames, holders = self._pack(action.tensors)
        except InputsLostError as error:
            self._orchestrator.request_owners.tell(PartTaken(action.request_id, action.index, error.blocks))
            return
        self._send(request.session, PartMessage(request.request_id, action.index, tuple(headers), holders), frames)

    def fail(self, request_id: int, error: Exception) -> None:
        """Sends an error."""
        request = self._sessions.request_of(request_id)
        if request is not None:
            self._sessions.end_request(request.session, request.request_id)
            story = None if request.story is None else packing.pack_trace(request.story)
            self._send(request.session, _failed(request.request_id, error, story))

    def _pack(self, tensors: Sequence[TensorRef]) -> tuple[list[ColumnHeader], list[Frame], tuple[TensorHolder, ...]]:
        """Packs the tensors of an answer. Gateways know this process by a name; its replicas do not need one."""
        headers, frames, holders = self._tensors.pack([tuple(tensors)] if tensors else [])
        named = [replace(holder, holder_id=self._name) if holder.holder_id == OWN else holder for holder in holders]
        return headers, frames, tuple(named)

    def _ours(self, blocks: Sequence[BlockId]) -> list[BlockId]:
        return [(OWN if holder_id == self._name else holder_id, block) for holder_id, block in blocks]

    def confirm_effect(self, requests: Sequence[int], go: Callable[[bool], None]) -> None:
        """Announces an effect to the gateways whose requests have it, and waits until they acknowledge it."""
        concerned: dict[GatewaySession, list[RemoteRequest]] = {}
        for number in requests:
            if (request := self._sessions.request_of(number)) is not None:
                concerned.setdefault(request.session, []).append(request)
        self._effects.announce(concerned, go)

    def _send(self, session: GatewaySession, message: FromOrchestrator, frames: Sequence[Frame] = ()) -> None:
        """Sends a message. If another orchestrator may lead by now, the message waits until that is known."""
        if self._unsent or not self._lead.is_sure():
            copied = [encode(message), *[bytes(frame) for frame in frames]]
            self._when_sure(lambda: self._link.send(session.peer, copied))
        else:
            self._link.send(session.peer, [encode(message), *frames])

    def _when_sure(self, action: Callable[[], object]) -> None:
        """Runs an action now if this orchestrator leads for sure, else as soon as it does; never if it has lost its lead."""
        if not self._unsent and self._lead.is_sure():
            action()
            return
        if not self._unsent:
            self._loop.call_later(_ASK_AGAIN_S, self._send_rest)
        self._unsent.append(action)

    def _send_rest(self) -> None:
        if self._lead.is_sure():
            unsent, self._unsent = self._unsent, []
            for action in unsent:
                action()
        else:
            self._loop.call_later(_ASK_AGAIN_S, self._send_rest)

    def _release_block(self, session: GatewaySession, block: int) -> None:
        if not self._suspended.withholds(session, block):
            self._free_later(session, block)

    def _free_later(self, session: GatewaySession, block: int) -> None:
        if not self._freed:
            self._loop.call_soon(self._send_freed)
        self._freed.setdefault(session.peer, []).append(block)

    def _send_freed(self) -> None:
        freed, self._freed = self._freed, {}
        for peer, blocks in freed.items():
            if (session := self._sessions.of_peer(peer)) is not None:
                self._send(session, GatewayBlocksReleased(tuple(blocks)))

    def _send_to_all(self, message: FromOrchestrator) -> None:
        for session in self._sessions.all():
            self._send(session, message)

    def _send_offers(self) -> None:
        self._send_to_all(OffersUpdate(self._orchestrator.offers.all, self.control.report()))
        self._send_states()

    def _send_states(self) -> None:
        """Sends the programs' states, if they have changed, and which replicas are gone."""
        values = self._orchestrator.status.as_values()
        if values == self._sent_states:
            return
        for name in _replicas_of(self._sent_states) - _replicas_of(values):
            self._send_to_all(HolderGone(name))
        self._sent_states = values
        self._send_to_all(StatusUpdate(values))

    async def _send_states_forever(self) -> None:
        while True:
            await self._orchestrator.status.wait_for_change(_SHOW_AGAIN_S)
            self._send_states()

    # Gateways that go

    def _connection_lost(self, peer: bytes, ending: PeerEnding) -> None:
        session = self._sessions.of_peer(peer)
        if session is not None:
            _log.warning("gateway_left", gateway=session.gateway_id, reason=ending.reason)
            self._drop_session(session)

    def _drop_session(self, session: GatewaySession) -> None:
        """Cancels the requests of a gateway, and forgets what it holds."""
        for request_id, number in list(session.numbers.items()):
            request = self._sessions.request_of(number)
            if request is not None and request.history is not None:
                request.history.withdraw()  # its gateway submits it to the next leader, or is gone
            self._end(session, request_id, self._orchestrator.request_owners.give_up)
        self._effects.drop_session(session)
        self._sessions.remove(session)
        self.control.drop_session(session)
        self._orchestrator.request_owners.remove_holder(session.gateway_id)


def _failed(request_id: int, error: Exception, story: dict[str, Any] | None = None) -> RequestFailed:
    return RequestFailed(request_id, *pack_error(error), story)


def _replicas_of(shown: dict[str, Any]) -> set[str]:
    return {name for _, _, replicas, _ in shown.values() for name in replicas}
