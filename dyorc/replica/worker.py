"""The replica's worker: dials in, loads and drops its program on the orchestrator's orders, and runs batch after batch.

One thread does all of it. The next batch arrives meanwhile in the kernel's buffer or in ZeroMQ's own thread, so compute hides
the transfer.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import Any

from dyorc.authoring.program import Program
from dyorc.config import LogsConfig
from dyorc.errors import TransportError
from dyorc.replica.assignment import Identity, Uplink
from dyorc.replica.batch_runner import BatchRunner, RoomWait
from dyorc.replica.executor import load_error
from dyorc.replica.fork_client import GroupSite
from dyorc.replica.leader_link import LeaderLink, LeaderTracker
from dyorc.replica.program_copy import ProgramCopy, failure_of
from dyorc.replica.program_lifecycle import process_age_s
from dyorc.replica.shared_process import SharedProcess
from dyorc.replica.stager import Stager
from dyorc.telemetry import logs
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.transport.column_codec import Frame
from dyorc.transport.inbox import BatchBuffers, Inbox
from dyorc.transport.messages import (
    BatchRequest,
    Forget,
    LastWords,
    Leaving,
    Loading,
    LogAs,
    Message,
    Park,
    ReleaseBlocks,
    ReleaseResidents,
    ReplicaWelcome,
    Warm,
    decode,
    encode,
)
from dyorc.transport.staging import StagingArea
from dyorc.transport.tensor_path import TensorExchange
from dyorc.transport.tier_routes import Routes

_FIRST_LOOK_S = 2.0
"""How long a new replica waits for the store to name the leader, before it dials the address that it was given."""
_ACKNOWLEDGED_S = 1.0
"""How soon the orchestrator, if there is one, acknowledges that a replica leaves or ends."""


class Worker:
    """Hosts one program.

    Args:
        find: Imports the user's module, and returns the program.
        plan: A digest of its code and options.
        site: Where members come from, if its program is split over a group.
        shared: What it shares with the workers of other programs of its process; None if it shares nothing.

    Attributes:
        exchange: Its end of the tensor path.
    """

    def __init__(
        self,
        find: Callable[[], Program],
        identity: Identity,
        uplink: Uplink,
        plan: str = "",
        site: GroupSite | None = None,
        shared: SharedProcess | None = None,
    ) -> None:
        self._find = find
        self._name = identity.program
        self._identity = identity
        self._uplink = uplink
        self._plan = plan
        self._site = site
        self._shared = shared
        self._following = LeaderTracker(uplink)
        network = uplink.network(identity.host)
        self.exchange = TensorExchange(identity.replica_id, identity.node, uplink.transport, network)
        self._thread = threading.Thread(target=self._main, name=f"dyorc-{self._name}", daemon=True)
        self._found = threading.Event()
        self._stopping = threading.Event()
        self._leaving = threading.Event()
        self._busy_since_s: float | None = None
        self._error: BaseException | None = None
        self._timeout_s = 0.0

    def start(self) -> None:
        """Starts the thread and waits until the program is imported. The orchestrator decides when it is loaded.

        Raises:
            ProgramLoadError: If the user's module cannot be imported; the orchestrator knows that.
        """
        self._thread.start()
        self._found.wait()
        if self._error is not None:
            raise self._error

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the thread after the running batch."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def leave(self, timeout_s: float) -> None:
        """Ends the thread once the orchestrator has parked the replica, nothing runs, and nothing needs its tensors; at the
        latest after this time. Without an orchestrator, ends it after the running batch.
        """
        give_up_s = time.monotonic() + timeout_s
        if self._notify(Leaving(self._identity.replica_id, timeout_s), min(_ACKNOWLEDGED_S, timeout_s)):
            self._leaving.set()
            self._thread.join(max(0.0, give_up_s - time.monotonic()))
        self.stop(max(0.0, give_up_s - time.monotonic()))

    def report_last_words(self, reason: str) -> None:
        """Reports to the orchestrator, if there is one, why this process is about to end. Any thread."""
        self._notify(LastWords(self._identity.replica_id, reason), _ACKNOWLEDGED_S)

    def _notify(self, message: Leaving | LastWords, timeout_s: float) -> bool:
        """Sends a message on a separate link, and returns whether the orchestrator has acknowledged it in time."""
        with closing(self._uplink.dial(timeout_s, self._following.address)) as link:
            link.send([encode(message)])
            return link.receive() is not None

    def check(self) -> None:
        """Raises RuntimeError if the thread has died, or a batch takes longer than its program may."""
        if not self._thread.is_alive():
            raise RuntimeError(f"the worker of program {self._name!r} has died: {self._error!r}")
        since_s = self._busy_since_s
        if since_s is not None and time.monotonic() - since_s > self._timeout_s:
            raise RuntimeError(f"program {self._name!r} has been running one batch for more than {self._timeout_s} s")

    def _main(self) -> None:
        try:
            self._following.look(_FIRST_LOOK_S)  # the orchestrator that requested this replica may have been replaced long ago
            with closing(LeaderLink(self._uplink, self._following, self._uplink.link.announce_interval_s)) as link:
                link.send([encode(Loading(self._identity.replica_id, self._name))])
                with self.exchange as exchange:
                    program = self._find_program(link)
                    self._timeout_s = program.options.execution_timeout_s
                    copy = ProgramCopy(program, self._identity, exchange.holder, self._plan, process_age_s())
                    copy.spans, copy.site = self._spans(), self._site
                    self._found.set()
                    self._work(link, exchange, copy)
        except BaseException as error:
            self._error = error
        finally:
            self._found.set()

    def _work(self, link: LeaderLink, exchange: TensorExchange, copy: ProgramCopy) -> None:
        """Runs batches; fetches tensors ahead, if there are other nodes."""
        with ExitStack() as stack:
            if copy.spans is not None:
                stack.enter_context(copy.spans)
            staging = None
            if self._uplink.secrets is not None:
                routes = exchange.routes()
                stack.callback(routes.close)
                staging = StagingArea(routes, self._uplink.transport.staging_bytes)
                stack.enter_context(Stager(self._identity.replica_id, self._uplink, self._following, staging))
            routes = exchange.routes()
            stack.callback(routes.close)
            session = _Session(link, exchange, routes, copy, staging, self._shared)
            session.run(self._stopping, self._leaving, self._busy)

    def _spans(self) -> ProgramSpans | None:
        return None if self._uplink.spans is None else ProgramSpans.to(self._uplink.spans)

    def _busy(self, is_busy: bool) -> None:
        self._busy_since_s = time.monotonic() if is_busy else None

    def _find_program(self, link: LeaderLink) -> Program:
        try:
            return self._find()
        except BaseException as error:  # the user's module may raise anything
            failure = load_error(self._name, error)
            link.send([encode(failure_of(failure))])
            raise failure from error


class _Session:
    """A replica at work: carries out the orchestrator's messages, one after the other."""

    def __init__(
        self,
        link: LeaderLink,
        exchange: TensorExchange,
        routes: Routes,
        copy: ProgramCopy,
        staging: StagingArea | None,
        shared: SharedProcess | None,
    ) -> None:
        self._link = link
        self._exchange = exchange
        self._routes = routes
        self._copy = copy
        self._staging = staging
        self._turn: AbstractContextManager[Any] = nullcontext() if shared is None else shared.turn
        self._residents = None if shared is None else shared.residents
        self._runner: BatchRunner | None = None
        self._batches: deque[tuple[BatchRequest, list[Frame]]] = deque()
        self._is_announcing = True

    def run(self, stopping: threading.Event, leaving: threading.Event, busy: Callable[[bool], None]) -> None:
        """Carries out messages and runs batches, until it should stop, or should leave and has nothing left to do."""
        while not (stopping.is_set() or (leaving.is_set() and self._is_done())):
            if not self._batches and (self._is_announcing or not self._receive()):
                self._is_announcing = False
                self._link.send([encode(self._copy.introduction(self._link.fence))])
                continue
            while self._batches:
                with self._turn:
                    busy(True)
                    self._run_batch(*self._batches.popleft())
                    busy(False)

    def _is_done(self) -> bool:
        """Returns whether the orchestrator has parked it, and needs nothing that it holds."""
        return self._runner is None and not self._batches and not self._exchange.num_tensors and not self._residents

    def _run_batch(self, request: BatchRequest, frames: list[Frame]) -> None:
        if self._runner is None:
            raise TransportError("a replica got a batch although it is parked")
        self._runner.answer(request, frames, self._link.send)

    def _warm(self) -> None:
        """Loads the program, and reports a failure."""
        with self._turn:
            failure = self._copy.warm()
        self._is_announcing = True
        executor = self._copy.executor
        if failure is not None:
            self._link.send([encode(failure)])
        elif self._runner is None and executor is not None:
            buffers = BatchBuffers().take
            inbox = Inbox(self._routes, buffers, self._staging.take) if self._staging else Inbox(self._routes, buffers)
            memory = self._exchange.holder.memory
            room_wait = RoomWait(self._wait_for_room, self._exchange.config.arena_wait_s, memory)
            self._runner = BatchRunner(
                self._exchange.holder.holder_id, executor, inbox, self._exchange.outbox, room_wait, self._residents
            )

    def _park(self) -> None:
        """Drops the program. Tensors in the arena stay."""
        self._runner = None
        self._copy.park()
        self._is_announcing = True

    def _receive(self) -> bool:
        """Handles the next message; returns False if none came in time."""
        frames = self._link.receive()
        if frames is None:
            return False
        message = decode(frames[0])
        if isinstance(message, ReplicaWelcome):
            self._join(message.fence)
        elif not self._link.is_trusted:
            return True  # from an orchestrator that does not lead, or has not sent its fence yet
        elif isinstance(message, BatchRequest):
            self._batches.append((message, frames[1:]))
        else:
            self._handle(message)
        return True

    def _join(self, fence: int) -> None:
        """Works for the orchestrator at the other end of the link from now on, and for no other."""
        is_another = fence != self._link.fence
        if self._link.check_fence(fence):
            self._exchange.free_all()
            if self._residents is not None:
                self._residents.clear()
            if self._staging is not None:
                self._staging.clear()
        else:
            self._is_announcing = True
        if is_another:
            self._batches.clear()

    def _handle(self, message: Message) -> None:
        match message:
            case ReleaseBlocks(blocks=blocks):
                for block in blocks:
                    self._exchange.arena.free(block)
            case ReleaseResidents(numbers=numbers):
                if self._residents is not None:
                    self._residents.release(numbers)
            case Forget(holder_id=holder_id):
                self._routes.forget(holder_id)
            case Warm():
                self._warm()
            case Park():
                self._park()
            case LogAs(level=level, format=form):
                logs.change(LogsConfig(level=level, format=form))
            case _:
                raise TransportError(f"unexpected message {type(message).__name__} for a replica")

    def _wait_for_room(self) -> None:
        """Handles messages, among them releases. Batches that come meanwhile wait.

        If no message comes, the orchestrator may be a new one. The replica announces itself once no batch is left: a new
        orchestrator did not request their results, and accepts results only from replicas that it knows.
        """
        if not self._receive():
            self._is_announcing = True
