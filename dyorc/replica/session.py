"""A replica at work: carries out the orchestrator's messages."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import structlog

from dyorc.config import LogsConfig
from dyorc.devices.shared_tensors import SharedTensors
from dyorc.errors import TransportError
from dyorc.replica.batch_receiver import ReadyMessages
from dyorc.replica.batch_runner import BatchRunner, RoomWait
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.leader_link import LeaderLink
from dyorc.replica.ongoing_batches import OngoingBatches
from dyorc.replica.program_copy import ProgramCopy
from dyorc.replica.shared_process import SharedProcess
from dyorc.telemetry import logs
from dyorc.transport.column_codec import Frame
from dyorc.transport.inbox import BatchBuffers, Inbox
from dyorc.transport.message_packing import unpack
from dyorc.transport.messages import (
    BatchRequest,
    Cancel,
    Forget,
    LogAs,
    Message,
    Park,
    PartFeed,
    PartGrant,
    ReleaseBlocks,
    ReleaseResidents,
    ReplicaWelcome,
    Warm,
    decode,
    encode,
)
from dyorc.transport.outbox import Outbox
from dyorc.transport.staging import StagingArea
from dyorc.transport.tensor_path import TensorExchange
from dyorc.transport.tier_routes import Routes
from dyorc.transport.wake_up import WakeUp

_log = structlog.get_logger("dyorc.replica")


class Ending:
    """When a session should end. Any thread.

    Attributes:
        is_leaving: Whether it should end once the orchestrator has parked it, and needs nothing that it holds.
    """

    def __init__(self) -> None:
        self.is_leaving = False
        self._is_stopping = threading.Event()
        self._patience_ends_s = 0.0

    def stop(self, patience_s: float) -> None:
        """Makes it end after its running batch; those that run side by side may take this long."""
        self._patience_ends_s = time.monotonic() + patience_s
        self._is_stopping.set()

    def is_over(self, *, is_busy: bool) -> bool:
        """Returns whether it should end now.

        Args:
            is_busy: Whether batches run side by side.
        """
        return self._is_stopping.is_set() and not (is_busy and time.monotonic() < self._patience_ends_s)


class Session:
    """Carries out messages, one after the other. One thread; batches of a program that waits or yields run on its loop.

    Args:
        shared: What it shares with other programs of its process; None if it shares nothing.
        has_worked: Called once it has run its first batch. A batch of a program that waits or yields counts when it begins.
    """

    def __init__(
        self,
        link: LeaderLink,
        exchange: TensorExchange,
        routes: Routes,
        copy: ProgramCopy,
        staging: StagingArea | None,
        shared: SharedProcess | None = None,
        has_worked: Callable[[], None] = lambda: None,
    ) -> None:
        self._has_worked: Callable[[], None] | None = has_worked
        self._link = link
        self._exchange = exchange
        self._routes = routes
        self._copy = copy
        self._staging = staging
        self._turn: AbstractContextManager[Any] = nullcontext() if shared is None else shared.turn
        self._residents = None if shared is None else shared.residents
        self._runner: BatchRunner | None = None
        self._batches: deque[tuple[BatchRequest, Sequence[Frame]]] = deque()
        self._running_since_s: float | None = None
        self._ongoing: OngoingBatches | None = None
        self._wake: WakeUp | None = None
        self._is_announcing = True
        self._devices: SharedTensors | None = None
        self._stack = ExitStack()

    @property
    def busy_since_s(self) -> float | None:
        """Since when a batch has been running, or not got on, by the monotonic clock; None if none does. Any thread."""
        ongoing = self._ongoing
        return self._running_since_s if ongoing is None else ongoing.busy_since_s

    def run(self, ending: Ending) -> None:
        """Carries out messages and runs batches, until it should stop, or should leave and has nothing left to do."""
        with ExitStack() as stack:
            if self._copy.is_ongoing:
                self._wake = stack.enter_context(WakeUp())
                stack.callback(self._copy.stop_loop)
            self._stack = stack
            while not self._is_over(ending):
                if not self._batches and (self._is_announcing or not self._receive()):
                    self._is_announcing = False
                    self._link.send([encode(self._copy.introduction(self._link.fence))])
                    continue
                while self._batches:
                    with self._turn:
                        self._running_since_s = time.monotonic()
                        self._run_batch(*self._batches.popleft())
                        self._running_since_s = None

    def _is_over(self, ending: Ending) -> bool:
        is_busy = self._ongoing is not None and self._ongoing.num_batches > 0
        return ending.is_over(is_busy=is_busy) or (ending.is_leaving and self._is_done())

    def _is_done(self) -> bool:
        """Returns whether the orchestrator has parked it, and needs nothing that it holds."""
        is_parked = self._runner is None and self._ongoing is None
        return is_parked and not self._batches and not self._exchange.num_tensors and not self._residents

    def _run_batch(self, request: BatchRequest, frames: Sequence[Frame]) -> None:
        if self._runner is None:
            raise TransportError("a replica got a batch although it is parked")
        self._runner.answer(request, frames, self._link.send)
        self._note_work()

    def _note_work(self) -> None:
        if self._has_worked is not None:
            self._has_worked()
            self._has_worked = None

    # Loading

    def _warm(self) -> None:
        """Loads the program, and reports a failure."""
        with self._turn:
            failure = self._copy.warm()
        self._is_announcing = True
        if failure is not None:
            self._link.send([encode(failure)])
        elif self._runner is None and self._ongoing is None:
            self._open()

    def _open(self) -> None:
        """Makes what runs the batches of the program, which is loaded."""
        copy, exchange, staging = self._copy, self._exchange, self._staging
        replica_id, wait_s = exchange.holder.holder_id, exchange.config.arena_wait_s
        if copy.executor is None:
            return
        if copy.loop is not None and self._wake is not None:
            inbox = Inbox(self._routes, is_writing=False)
            if staging is not None:
                inbox = Inbox(self._routes, staged=staging.take, is_writing=False)
            outbox = Outbox(exchange.arena, exchange.outbox.inline_limit_bytes)
            ready = ReadyMessages(replica_id, outbox, self._wake)
            self._ongoing = OngoingBatches(copy.executor, copy.loop, inbox, ready, wait_s)
        else:
            buffers = BatchBuffers().take
            inbox = Inbox(self._routes, buffers, staging.take) if staging else Inbox(self._routes, buffers)
            room_wait = RoomWait(self._wait_for_room, wait_s, exchange.holder.memory)
            self._runner = BatchRunner(
                replica_id, copy.executor, inbox, exchange.outbox, room_wait, self._residents, self._share_device(copy.executor)
            )

    def _share_device(self, executor: ProgramExecutor) -> SharedTensors | None:
        """Returns what stays on the program's device; None if it has none, or nothing may stay there."""
        config = self._exchange.config
        if executor.device is None or config.device_bytes == 0 or sys.platform != "linux":
            return None
        if config.share_by_folder:  # readers in other containers do not reach the socket by which they ask for copies
            return None
        if self._devices is None:
            limit_bytes = self._exchange.outbox.inline_limit_bytes
            try:
                self._devices = SharedTensors(executor.device.accelerator, self._exchange.arena, limit_bytes, config.device_bytes)
            except TransportError as error:
                _log.info("device_memory_not_shared", device=executor.device.accelerator.name, error=str(error))
                return None
            self._stack.callback(self._devices.close)
            self._stack.enter_context(self._exchange.share_device(self._devices))
        return self._devices

    def _park(self) -> None:
        """Drops the program. Tensors in the arena stay."""
        self._runner = self._ongoing = None
        if self._devices is not None:
            self._devices.park()
        self._copy.park()
        self._is_announcing = True

    # Messages

    def _receive(self) -> bool:
        """Handles the next message, and sends what batches have made meanwhile. Returns False if it is time to announce the
        replica, because nothing came.
        """
        frames = self._link.receive(wake=self._wake)
        if frames is not None:
            for message, parts in unpack(decode(frames[0]), frames[1:]):
                self._take_in(message, parts)
        if self._wake is not None and self._wake.clear() and self._ongoing is not None:
            self._ongoing.send_ready(self._link.send)
        if self._devices is not None and frames is None and not self._batches:
            self._devices.close_idle()
        return not self._link.is_silent

    def _take_in(self, message: Message, frames: Sequence[Frame]) -> None:
        if isinstance(message, ReplicaWelcome):
            self._join(message.fence)
        elif not self._link.is_trusted:
            return  # from an orchestrator that does not lead, or has not sent its fence yet
        elif isinstance(message, BatchRequest):
            if self._ongoing is None:
                self._batches.append((message, frames))
            else:
                self._ongoing.start(message, frames)
                self._note_work()
        elif isinstance(message, PartGrant | PartFeed | Cancel):
            if self._ongoing is not None:  # otherwise the batch was that of an earlier copy
                self._ongoing.control(message, frames)
        else:
            self._handle(message)

    def _join(self, fence: int) -> None:
        """Works for the orchestrator at the other end of the link from now on, and for no other."""
        is_another = fence != self._link.fence
        if self._link.check_fence(fence):
            if self._devices is not None:
                self._devices.release_all()
            if self._ongoing is None:
                self._exchange.free_all()
            else:  # the orchestrator that welcomes a replica knows none of its batches
                self._ongoing.abandon_all(self._exchange.free_all)
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
                    if self._devices is not None:
                        self._devices.release(block)  # first: a copy to the block may be under way
                    self._exchange.arena.free(block)
            case ReleaseResidents(numbers=numbers):
                if self._residents is not None:
                    self._residents.release(numbers)
            case Forget(holder_id=holder_id):
                self._routes.forget(holder_id)
                if self._devices is not None:
                    self._devices.forget(holder_id)
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
