"""The fleet of replicas that dial in: takes their messages and sends them theirs."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.authoring.program import Program
from dyorc.config import LinkConfig, LogsConfig, TransportConfig
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import BatchControl, DispatchBatch
from dyorc.engine.events import (
    BatchFailed,
    BatchUnsent,
    Event,
    LoadFailed,
    ReplicaJoined,
    ReplicaLeaving,
    ReplicaLeft,
    TensorsLost,
)
from dyorc.errors import TransportError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.batch_messages import BatchMessages
from dyorc.orchestrator.holding_processes import HoldingProcesses
from dyorc.orchestrator.replica_registry import ReplicaRegistry, Scale
from dyorc.system.log_throttle import LogThrottle
from dyorc.transport.arena_file import sweep
from dyorc.transport.cluster_network import NodeNetwork
from dyorc.transport.column_codec import Frame
from dyorc.transport.link import OrchestratorEnd, listen
from dyorc.transport.message_packing import pack, unpack
from dyorc.transport.messages import (
    Acknowledged,
    BatchFailure,
    BatchReply,
    Forget,
    InputsLost,
    LastWords,
    Leaving,
    LoadFailure,
    Loading,
    LogAs,
    Message,
    Parked,
    PartReply,
    PartsTaken,
    ReleaseBlocks,
    ReleaseResidents,
    ReplicaHello,
    ReplicaWelcome,
    StageSpans,
    StagingHello,
    UnstageTensors,
    decode,
    encode,
)
from dyorc.transport.peer_process import CONNECTION_LOST, PROCESS_ENDED, LinkCallbacks, PeerEnding, ending_of
from dyorc.transport.tiers import ByteSpan

_log = structlog.get_logger("dyorc.orchestrator")

_ORDERLY = frozenset({ending_of(0), CONNECTION_LOST, PROCESS_ENDED})
"""How a replica ends that was told to, as far as that can be seen from here."""

_SWEEP_AFTER_S = 0.5
"""After a replica's connection is lost, its process may still hold its arena briefly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where replicas dial in, and its settings.

    Attributes:
        node: This machine, as its replicas name it.
        network: This process's place among other nodes; None without other nodes.
        end: Called with the process id of a replica of this node that was given up, to end it if it still runs.
        scale: Called with a program and how many processes it should have.
        lead: This process's leadership; None if it leads no group.
        plans: A digest for the code and options of each program; replicas with another are refused. Empty: any.
    """

    address: str
    link: LinkConfig
    transport: TransportConfig
    node: str = ""
    network: NodeNetwork | None = None
    end: Callable[[int], None] = lambda pid: None
    scale: Scale = lambda program, num_processes: None
    lead: LeaderTerm | None = None
    plans: Mapping[str, str] = field(default_factory=dict[str, str])


class LinkFleet:
    """Replicas in separate processes, which dial in. Turns messages into events and actions into messages.

    Args:
        status: Records what each program's replicas do.
    """

    _link: OrchestratorEnd
    _post: Callable[[Event], None]

    def __init__(self, site: Site, tensors: Tensors, status: StatusBoard) -> None:
        self._site = site
        self._fence = 0 if site.lead is None else site.lead.fence
        self._status = status
        self._tensors = tensors
        self._peers: dict[str, bytes] = {}
        self._hellos: dict[bytes, ReplicaHello | Parked] = {}
        self._registry = ReplicaRegistry(
            status, self._tell, site.scale, lambda replica_id: self._post(ReplicaLeaving(replica_id))
        )
        self._welcomed: set[str] = set()
        self._last_words: dict[str, str] = {}  # why replicas said that their processes were about to end
        self._stagers: dict[str, bytes] = {}
        self._staged: dict[BlockId, set[str]] = {}
        self._processes = HoldingProcesses()
        self._refused = LogThrottle(_log, "message_refused")
        self._batches = BatchMessages(tensors)
        self._controls: dict[str, list[BatchControl]] = {}
        self._logs: bytes | None = None  # tells how to log, if that has changed

    @asynccontextmanager
    async def running(self, post: Callable[[Event], None], flush: Callable[[], None]) -> AsyncGenerator[None]:
        """Listens while entered."""
        self._loop = asyncio.get_running_loop()
        self._post = post
        network = self._site.network
        keys = None if network is None else network.secrets.keys
        callbacks = LinkCallbacks(self._received, flush, self._connection_lost)
        self._link = listen(self._site.address, self._site.link, callbacks, keys=keys)
        async with self._link:
            try:
                yield
            finally:
                self._registry.close()

    @property
    def address(self) -> str:
        """Where replicas dial in."""
        return self._link.address

    def report(self) -> dict[str, int]:
        """Returns how many bytes went over the link to replicas."""
        return {"num_bytes_sent": self._link.num_bytes_sent, "num_bytes_received": self._link.num_bytes_received}

    def start_over(self) -> None:
        """Lets replicas join a new engine when they register, and drops what they fetched for the old one."""
        self._welcomed.clear()
        self._staged.clear()

    # To replicas

    def add(self, program: Program) -> bool:
        """Accepts replicas of a program from now on; the caller has to start them."""
        return False

    def remove(self, program: str) -> None:
        """Sends the replicas of a program nothing from now on."""
        self._registry.remove(program)

    def control(self, action: BatchControl) -> None:
        """Sends what a batch that runs gets next, when the turn ends."""
        self._controls.setdefault(action.replica_id, []).append(action)

    def dispatch(self, action: DispatchBatch) -> None:
        """Sends a batch."""
        message = self._batches.request(action)
        if isinstance(message, TensorsLost | BatchFailed):
            self._post(message)
        elif not self._send(action.replica_id, message):
            self._post(BatchUnsent(action.replica_id, action.batch_id))
            self._post(ReplicaLeft(action.replica_id, "not reachable"))
        elif action.replica_id in self._stagers:
            self._note_kept(action)

    def _note_kept(self, action: DispatchBatch) -> None:
        """Records that a replica keeps tensors of other nodes that were sent to it in parts (`Inbox`)."""
        node = self._hellos[self._peers[action.replica_id]].holder.node
        for operands in action.operands:
            for tensor in operands:
                if tensor.block and tensor.views and tensor.node != node:
                    self._staged.setdefault((tensor.holder, tensor.block), set()).add(action.replica_id)

    def end_turn(self) -> None:
        """Sends each replica what its running batches get next, together."""
        while self._controls:
            replica_id, actions = self._controls.popitem()
            self._send_controls(replica_id, actions)

    def _send_controls(self, replica_id: str, actions: Sequence[BatchControl]) -> None:
        messages, failed = self._batches.controls(actions)
        peer = self._peers.get(replica_id)
        if peer is not None:  # otherwise the engine is about to learn that
            for message in pack(messages):
                self._link.send(peer, message)
        for event in failed:
            self._post(event)

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Tells the holders of blocks, and replicas that prefetched them, that they are no longer needed."""
        held: dict[str, list[int]] = {}
        for holder_id, block in blocks:
            if holder_id != OWN:
                held.setdefault(holder_id, []).append(block)
        for holder_id, numbers in held.items():
            replica_id = self._processes.replica_in(holder_id)
            if replica_id is not None:
                self._tell(replica_id, ReleaseResidents(tuple(numbers)))
            else:
                self._tell(holder_id, ReleaseBlocks(tuple(numbers)))
        if self._staged:
            fetched: dict[str, list[BlockId]] = {}
            for block in blocks:
                for replica_id in self._staged.pop(block, ()):
                    fetched.setdefault(replica_id, []).append(block)
            for replica_id, unneeded in fetched.items():
                self._send_to_stager(replica_id, UnstageTensors(tuple(unneeded)))

    def stage(self, replica_id: str, tensors: Sequence[TensorRef]) -> None:
        """Tells a replica that it will need tensors of another node."""
        spans: dict[str, list[ByteSpan]] = {}
        for tensor in tensors:
            spans.setdefault(tensor.holder, []).append(ByteSpan(tensor.block, tensor.offset, tensor.num_bytes))
        for holder_id, held in spans.items():
            holder = self._tensors.holder(holder_id)
            if holder is not None and self._send_to_stager(replica_id, StageSpans(holder, tuple(held))):
                for span in held:
                    self._staged.setdefault((holder_id, span.block), set()).add(replica_id)

    def _send_to_stager(self, replica_id: str, message: Message) -> bool:
        """Sends a message to a replica's second thread, if it has one."""
        peer = self._stagers.get(replica_id)
        return peer is not None and self._link.send(peer, [encode(message)])

    def want(self, program: str, num_warm: int, num_parked: int) -> bool:
        """Makes parked replicas load the program, and requests processes if there are too few."""
        if program not in self._status.programs:
            return False
        self._registry.want(program, num_warm, num_parked)
        return True

    def park(self, replica_id: str) -> None:
        """Makes a replica drop its program."""
        self._registry.park(replica_id)

    def set_logs(self, config: LogsConfig) -> None:
        """Tells all replicas, also replicas that join later."""
        self._logs = encode(LogAs(config.level, config.format))
        for replica_id in self._peers:
            self._send(replica_id, [self._logs])

    def give_up(self, replica_id: str, reason: str) -> None:
        """Makes a hung replica give way to another, now."""
        peer = self._peers.get(replica_id)
        hello = self._hellos.get(peer) if peer is not None else None
        if peer is not None and hello is not None:
            self._lost(peer, reason)
            self._end_process(hello)

    def _tell(self, replica_id: str, message: Message) -> None:
        self._send(replica_id, [encode(message)])

    def _send(self, replica_id: str, frames: Sequence[Frame]) -> bool:
        if (actions := self._controls.pop(replica_id, None)) is not None:  # they came first
            self._send_controls(replica_id, actions)
        peer = self._peers.get(replica_id)
        return peer is not None and self._link.send(peer, frames)

    # From replicas

    def _received(self, peer: bytes, frames: Sequence[Frame]) -> None:
        try:
            for message, parts in unpack(decode(frames[0]), frames[1:]):
                self._take_in(peer, message, parts)
        except TransportError as error:
            self._refused.report(error=str(error))

    def _take_in(self, peer: bytes, message: Message, frames: Sequence[Frame]) -> None:
        if isinstance(message, ReplicaHello | Parked | Loading | LoadFailure) and message.program not in self._status.programs:
            raise TransportError(f"a replica of program {message.program!r}, which is not deployed here")
        match message:
            case BatchReply() | BatchFailure() | InputsLost() | PartReply() | PartsTaken():
                for event in self._batches.events(message, frames):
                    self._post(event)
            case ReplicaHello() | Parked():
                self._greet(peer, message)
            case LoadFailure(program=program):
                reason = f"{message.error_type}: {message.message}"
                self._registry.load_failed(program, reason)
                self._post(LoadFailed(program, message.error_type, message.message, message.traceback))
            case StagingHello(replica_id=replica_id):
                self._stagers[replica_id] = peer
            case Loading(program=program):
                self._status.loading(program)
            case Leaving(replica_id=replica_id, grace_s=grace_s):
                self._link.send(peer, [encode(Acknowledged())])
                self._registry.replica_leaving(replica_id, grace_s)
            case LastWords(replica_id=replica_id, reason=reason):
                self._link.send(peer, [encode(Acknowledged())])
                if replica_id in self._peers:
                    self._last_words[replica_id] = reason
            case _:
                raise TransportError(f"a replica sent {type(message).__name__}")

    def _greet(self, peer: bytes, hello: ReplicaHello | Parked) -> None:
        replica_id = hello.replica_id
        if hello.plan != self._site.plans.get(hello.program, hello.plan):
            _log.debug("replica_outdated", replica=replica_id)  # Serve replaces it
            return
        if hello.fence > self._fence and self._site.lead is not None:
            self._site.lead.report_fence(hello.fence)
            self._link.send(peer, [encode(ReplicaWelcome(self._fence))])  # so that it looks for who leads
            return
        if hello.holder.holder_id != replica_id:
            raise TransportError(f"replica {replica_id!r} says it holds tensors as {hello.holder.holder_id!r}")
        known = self._peers.get(replica_id)
        if known is not None and known != peer:
            self._lost(known, "it came back on a new connection")  # what was sent on the old one is gone
        self._peers[replica_id] = peer
        self._hellos[peer] = hello
        if replica_id not in self._welcomed:
            self._welcomed.add(replica_id)
            self._tensors.join(hello.holder)
            self._send(replica_id, [encode(ReplicaWelcome(self._fence))])
            if self._logs is not None:
                self._send(replica_id, [self._logs])
        if isinstance(hello, Parked):
            self._registry.replica_parked(hello)
            return
        self._processes.join(replica_id, hello.process)
        if self._registry.replica_ready(hello):
            self._post(ReplicaJoined(replica_id, hello.program, hello.holder.node, hello.num_cores, hello.process))

    # Replicas that go

    def _connection_lost(self, peer: bytes, ending: PeerEnding) -> None:
        """Handles a replica that is dead, stopped or cut off. If it does not come back soon, its process is ended, to make room
        for another.
        """
        hello = self._hellos.get(peer)
        reason = ending.reason if hello is None else self._last_words.get(hello.replica_id, ending.reason)
        is_expected = hello is not None and ending in _ORDERLY and self._registry.should_end(hello.replica_id)
        self._lost(peer, reason, is_crash=ending.is_crash, was_killed=ending.was_killed, is_expected=is_expected)
        if hello is not None:
            self._loop.call_later(self._site.link.kill_after_s, self._end_if_absent, hello)

    def _end_if_absent(self, hello: ReplicaHello | Parked) -> None:
        if hello.replica_id not in self._peers:
            self._end_process(hello)

    def _end_process(self, hello: ReplicaHello | Parked) -> None:
        if hello.holder.node == self._site.node:  # on other nodes the id means another process; Serve's own checks end it there
            self._site.end(hello.pid)

    def _lost(
        self, peer: bytes, reason: str, *, is_crash: bool = False, was_killed: bool = False, is_expected: bool = False
    ) -> None:
        hello = self._hellos.pop(peer, None)
        if hello is None:
            return
        replica_id = hello.replica_id
        log = _log.info if is_expected else _log.warning
        log("replica_left", replica=replica_id, reason=reason)
        del self._peers[replica_id]
        self._welcomed.discard(replica_id)
        self._last_words.pop(replica_id, None)
        self._processes.leave(replica_id)
        self._registry.replica_left(replica_id)
        self._tensors.leave(replica_id)
        forget = encode(Forget(replica_id))
        self._stagers.pop(replica_id, None)
        for other in self._peers:
            self._send(other, [forget])
        for block in [block for block in self._staged if block[0] == replica_id]:
            del self._staged[block]
        for other in self._stagers:
            self._send_to_stager(other, Forget(replica_id))
        self._loop.call_later(_SWEEP_AFTER_S, sweep, self._site.transport.arena_folder)
        self._post(ReplicaLeft(replica_id, reason, is_crash, was_killed))
