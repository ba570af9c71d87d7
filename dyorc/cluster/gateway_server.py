"""The orchestrator's end for gateways: takes their requests, and passes on what becomes of them.

Tensors pass as references: their bytes lie where they are, in a gateway's arena or a replica's, until somebody reads them there.
Lives on the orchestrator's event loop.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
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
from dyorc.config import LinkConfig, LogsConfig
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.core.terms import Terms
from dyorc.engine.actions import AnswerPart, AnswerRequest
from dyorc.engine.events import AnswerTaken, PartTaken, RequestArrived
from dyorc.engine.request_trace import RequestTrace
from dyorc.errors import TransportError, UnknownModelError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.models.offers import ModelKey
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.system.log_throttle import LogThrottle
from dyorc.transport.callbacks import LinkCallbacks
from dyorc.transport.codec import ColumnHeader, Frame
from dyorc.transport.endings import PeerEnding
from dyorc.transport.inbox import InputsLostError
from dyorc.transport.link import OrchestratorEnd, listen
from dyorc.transport.tiers import TensorHolder
from dyorc.transport.zmq_security import ClusterKeys

_log = structlog.get_logger("dyorc.orchestrator")

_SHOW_AGAIN_S = 1.0
_DRAINED_S = 0.02
"""Interval of looks whether everything is answered."""
_ASK_AGAIN_S = 0.02


def _alone() -> LeaderTerm:
    """Returns the lead of an orchestrator that has no rivals."""
    return LeaderTerm(group="default", fence=1, is_sure=lambda: True, heard_of=lambda fence: None)


class GatewayServer:
    """Listens to gateways while entered; an `Asker` for all of them.

    Args:
        orchestrator: Runs their requests; entered.
        address: Where to listen.
        default_timeout_s: What requests have that name no limit (`EngineConfig.request_timeout_s`).
        keys: The cluster's; None only if no other machine can reach the address.
        lead: The lead of the group; None if there are no rivals.

    Attributes:
        control: Carries out changes of deployed versions and of the number of replicas.
    """

    _link: OrchestratorEnd

    def __init__(
        self, orchestrator: Orchestrator, address: str, link: LinkConfig, *, default_timeout_s: float = 300.0,
        keys: ClusterKeys | None = None, lead: LeaderTerm | None = None,
    ) -> None:  # fmt: skip
        self._orchestrator = orchestrator
        self._tensors = orchestrator.tensors
        self._lead = lead or _alone()
        self._default_timeout_s = default_timeout_s
        callbacks = LinkCallbacks(self._received, lambda: None, self._connection_lost)
        self._link = listen(address, link, callbacks, keys=keys)
        self._sessions = GatewaySessions()
        self._is_draining = False
        self._aside = SuspendedRequests(self._note_freed)
        self._ahead = EffectAnnouncements(self._send, self._aside, self._forget, self._ask_again)
        self.control = ControlServer(self._send, self._sessions.all, orchestrator.scale)
        self._shown: dict[str, Any] = {}
        self._name = f"orchestrator-{secrets.token_hex(4)}"
        self._freed: dict[bytes, list[int]] = {}
        self._refused = LogThrottle(_log, "message_refused")
        self._unsaid: list[Callable[[], object]] = []

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._link)
            self._orchestrator.offers.watch(self._offer)
            self._showing = asyncio.create_task(self._show_forever())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Hangs up. Gateways ask the next orchestrator for what is unanswered."""
        self._showing.cancel()
        for session in self._sessions.all():
            self._leave(session)
        await self._stack.aclose()

    async def drain(self, timeout_s: float) -> None:
        """Takes no new requests, and waits until those that it has are answered, and their effects have happened. Gateways keep
        the new ones for its successor.

        Args:
            timeout_s: How long at most.
        """
        self._is_draining = True
        give_up_s = time.monotonic() + timeout_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(session.numbers for session in self._sessions.all()):  # noqa: ASYNC110 (an event would cost each request)
                    await asyncio.sleep(_DRAINED_S)
        await self._orchestrator.finish_effects(give_up_s - time.monotonic())

    @property
    def address(self) -> str:
        """Where gateways dial in, once entered."""
        return self._link.address

    @property
    def num_gateways(self) -> int:
        """Gateways that are connected."""
        return len(self._sessions.all())

    # From gateways

    def _received(self, peer: bytes, frames: Sequence[Frame]) -> None:
        try:
            message = decode_from_gateway(frames[0])
            session = self._sessions.of_peer(peer)
            if isinstance(message, GatewayHello):
                self._greet(peer, message)
            elif session is None:
                raise TransportError(f"an unregistered gateway sent {type(message).__name__}, expected GatewayHello")
            else:
                self._take_in(session, message, frames[1:])
        except TransportError as error:
            self._refused.report(error=str(error))
            self._link.send(peer, [encode(Refused(str(error)))])

    def _greet(self, peer: bytes, hail: GatewayHello) -> None:
        lead = self._lead
        if hail.fence > lead.fence:
            lead.heard_of(hail.fence)
            raise TransportError(f"a gateway knows of fence {hail.fence}, this orchestrator has {lead.fence}")
        if not hail.gateway_id or hail.holder.holder_id != hail.gateway_id:
            raise TransportError(f"gateway {hail.gateway_id!r} says it holds tensors as {hail.holder.holder_id!r}")
        if (known := self._sessions.of_peer(peer) or self._sessions.named(hail.gateway_id)) is not None:
            self._leave(known)
        session = self._sessions.add(peer, hail)
        self._orchestrator.request_owners.add_holder(hail.holder, lambda block: self._released(session, block))
        self._send(session, Welcome(lead.group, lead.fence, self._default_timeout_s, time.monotonic_ns()))
        self._send(session, OffersUpdate(self._orchestrator.offers.all, self.control.report()))
        self._send(session, StatusUpdate(self._orchestrator.status.as_values()))
        _log.info("gateway_joined", gateway=hail.gateway_id)

    def _take_in(self, session: GatewaySession, message: FromGateway, frames: Sequence[Frame]) -> None:
        match message:
            case SubmitRequest():
                self._ask(session, message, frames)
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
                self._when_sure(lambda: self._ahead.known(session, number))
            case Refresh():
                self._refresh(session, message)
            case Scale() | Change():
                self.control.take(session, message)
            case DrainReply(number=number):
                self.control.settled(session, number)
            case SetLogs(values=values):
                self._orchestrator.set_logs(LogsConfig(**values))
            case _:
                raise TransportError(f"a gateway sent {type(message).__name__} a second time")

    def _ask(self, session: GatewaySession, ask: SubmitRequest, frames: Sequence[Frame]) -> None:
        """Runs a request. If that is not possible, sends its gateway the error."""
        if self._is_draining:
            return
        now_ns = time.monotonic_ns()
        try:
            workflow = self._orchestrator.workflow(ModelKey(ask.model, ask.version))
            inputs = self._inputs(session, ask, frames, len(workflow.signature.inputs))
        except (UnknownModelError, TransportError) as error:
            self._send(session, _failed(ask.request_id, error))
            return
        number = self._orchestrator.request_owners.next_number()
        story = RequestTrace(number, now_ns, ask.span) if ask.is_recorded else None
        deadline_ns = None if ask.timeout_s is None else now_ns + int(ask.timeout_s * 1e9)
        terms = Terms(
            deadline_ns=deadline_ns, priority=ask.priority, tenant=ask.tenant, weight=ask.weight,
            waits_for_effects=ask.waits_for_effects,
        )  # fmt: skip
        identity = identity_of(workflow.name, inputs, ask.statics, self._tensors)
        arrived = RequestArrived(number, workflow, inputs, ask.statics, terms, identity, story)
        self._run(RemoteRequest(session, ask.request_id, arrived, identity))

    def _run(self, wanted: RemoteRequest) -> None:
        self._sessions.want(wanted)
        self._orchestrator.request_owners.ask(wanted.arrived, self)

    def _forget(self, wanted: RemoteRequest) -> None:
        """Removes a suspended request from the engine; its gateway still wants it."""
        self._orchestrator.request_owners.give_up(wanted.number)

    def _ask_again(self, wanted: RemoteRequest) -> None:
        """Runs a suspended request from its beginning."""
        before = wanted.arrived
        number = self._orchestrator.request_owners.next_number()
        story = None if before.story is None else RequestTrace(number, before.story.started_ns, before.story.span)
        identity = identity_of(before.workflow.name, before.inputs, before.statics, self._tensors)
        self._sessions.done(wanted.session, wanted.request_id)
        arrived = replace(before, request_id=number, identity=identity, story=story)
        self._run(RemoteRequest(wanted.session, wanted.request_id, arrived, identity))

    def _inputs(
        self, session: GatewaySession, ask: SubmitRequest, frames: Sequence[Frame], num_inputs: int
    ) -> tuple[TensorRef, ...]:
        columns = self._tensors.refs(session.gateway_id, ask.columns, frames) if ask.columns else [()]
        if len(columns) != 1 or len(columns[0]) != num_inputs:
            raise TransportError(f"a request for {ask.model!r} has {len(ask.columns)} inputs, expected {num_inputs}")
        return columns[0]

    def _end(self, session: GatewaySession, request_id: int, end: Callable[[int], None]) -> None:
        wanted = self._sessions.done(session, request_id)
        if wanted is not None:
            end(wanted.number)
            self._aside.drop(wanted)

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

    # To gateways: an `Asker`

    def answer(self, action: AnswerRequest) -> None:
        """Passes an answer on; its bytes stay where they are until its gateway has read them."""
        wanted = self._sessions.wanted(action.request_id)
        is_stored = has_stored(action.tensors)
        if wanted is None:
            if is_stored:
                self._orchestrator.request_owners.tell(AnswerTaken(action.request_id))
            return
        try:
            headers, frames, holders = self._pack(action.tensors)
        except InputsLostError as error:
            self._orchestrator.request_owners.tell(AnswerTaken(action.request_id, error.blocks))
            return
        story = None if wanted.story is None else packing.pack_trace(wanted.story)
        if not is_stored:
            self._end(wanted.session, wanted.request_id, self._orchestrator.request_owners.end)
        self._send(wanted.session, AnswerMessage(wanted.request_id, tuple(headers), holders, story), frames)

    def part(self, action: AnswerPart) -> None:
        """Passes a part of an answer on."""
        wanted = self._sessions.wanted(action.request_id)
        if wanted is None:
            return
        try:
            headers, frames, holders = self._pack(action.tensors)
        except InputsLostError as error:
            self._orchestrator.request_owners.tell(PartTaken(action.request_id, action.index, error.blocks))
            return
        self._send(wanted.session, PartMessage(wanted.request_id, action.index, tuple(headers), holders), frames)

    def failed(self, request_id: int, error: Exception) -> None:
        """Passes an error on."""
        wanted = self._sessions.wanted(request_id)
        if wanted is not None:
            self._sessions.done(wanted.session, wanted.request_id)
            story = None if wanted.story is None else packing.pack_trace(wanted.story)
            self._send(wanted.session, _failed(wanted.request_id, error, story))

    def _pack(self, tensors: Sequence[TensorRef]) -> tuple[list[ColumnHeader], list[Frame], tuple[TensorHolder, ...]]:
        """Packs the tensors of an answer. This process has a name for gateways, since it has none among its replicas."""
        headers, frames, holders = self._tensors.pack([tuple(tensors)] if tensors else [])
        named = [replace(holder, holder_id=self._name) if holder.holder_id == OWN else holder for holder in holders]
        return headers, frames, tuple(named)

    def _ours(self, blocks: Sequence[BlockId]) -> list[BlockId]:
        return [(OWN if holder_id == self._name else holder_id, block) for holder_id, block in blocks]

    def confirm_effect(self, requests: Sequence[int], go: Callable[[bool], None]) -> None:
        """Announces an effect to the gateways whose requests have it, and waits until they know."""
        concerned: dict[GatewaySession, list[RemoteRequest]] = {}
        for number in requests:
            if (wanted := self._sessions.wanted(number)) is not None:
                concerned.setdefault(wanted.session, []).append(wanted)
        self._ahead.announce(concerned, go)

    def _send(self, session: GatewaySession, message: FromOrchestrator, frames: Sequence[Frame] = ()) -> None:
        """Sends a message, unless somebody else may lead by now: then it waits until that is known."""
        if self._unsaid or not self._lead.is_sure():
            said = [encode(message), *[bytes(frame) for frame in frames]]
            self._when_sure(lambda: self._link.send(session.peer, said))
        else:
            self._link.send(session.peer, [encode(message), *frames])

    def _when_sure(self, do: Callable[[], object]) -> None:
        """Does something now if this orchestrator leads for sure, else as soon as it does; never if it has lost its lead."""
        if not self._unsaid and self._lead.is_sure():
            do()
            return
        if not self._unsaid:
            self._loop.call_later(_ASK_AGAIN_S, self._say_rest)
        self._unsaid.append(do)

    def _say_rest(self) -> None:
        if self._lead.is_sure():
            unsaid, self._unsaid = self._unsaid, []
            for do in unsaid:
                do()
        else:
            self._loop.call_later(_ASK_AGAIN_S, self._say_rest)

    def _released(self, session: GatewaySession, block: int) -> None:
        if not self._aside.withholds(session, block):
            self._note_freed(session, block)

    def _note_freed(self, session: GatewaySession, block: int) -> None:
        if not self._freed:
            self._loop.call_soon(self._tell_freed)
        self._freed.setdefault(session.peer, []).append(block)

    def _tell_freed(self) -> None:
        freed, self._freed = self._freed, {}
        for peer, blocks in freed.items():
            if (session := self._sessions.of_peer(peer)) is not None:
                self._send(session, GatewayBlocksReleased(tuple(blocks)))

    def _tell_all(self, message: FromOrchestrator) -> None:
        for session in self._sessions.all():
            self._send(session, message)

    def _offer(self) -> None:
        self._tell_all(OffersUpdate(self._orchestrator.offers.all, self.control.report()))
        self._show()

    def _show(self) -> None:
        """Says what the programs are doing, if that has changed, and which replicas are gone."""
        values = self._orchestrator.status.as_values()
        if values == self._shown:
            return
        for name in _replicas_of(self._shown) - _replicas_of(values):
            self._tell_all(HolderGone(name))
        self._shown = values
        self._tell_all(StatusUpdate(values))

    async def _show_forever(self) -> None:
        while True:
            await self._orchestrator.status.wait_for_change(_SHOW_AGAIN_S)
            self._show()

    # Gateways that go

    def _connection_lost(self, peer: bytes, ending: PeerEnding) -> None:
        session = self._sessions.of_peer(peer)
        if session is not None:
            _log.warning("gateway_left", gateway=session.gateway_id, reason=ending.reason)
            self._leave(session)

    def _leave(self, session: GatewaySession) -> None:
        """Cancels what a gateway wanted, and forgets what it holds."""
        for request_id in list(session.numbers):
            self._end(session, request_id, self._orchestrator.request_owners.give_up)
        self._ahead.gone(session)
        self._sessions.remove(session)
        self.control.gone(session)
        self._orchestrator.request_owners.remove_holder(session.gateway_id)


def _failed(request_id: int, error: Exception, story: dict[str, Any] | None = None) -> RequestFailed:
    return RequestFailed(request_id, *packing.pack_error(error), story)


def _replicas_of(shown: dict[str, Any]) -> set[str]:
    return {name for _, _, replicas, _ in shown.values() for name in replicas}
