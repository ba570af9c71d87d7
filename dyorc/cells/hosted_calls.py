"""A loaded program in this process that waits or yields: runs its calls side by side, on its own event loop."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import structlog

from dyorc.authoring.array_memory import Reserve
from dyorc.authoring.program import Program
from dyorc.cells.batches import LocalBatch
from dyorc.cells.hosted_program import FleetContext, new_replica_id
from dyorc.cells.program_group import ProgramGroup
from dyorc.cells.program_tensors import ProgramInputs, ProgramResults
from dyorc.core.arrays import Array
from dyorc.core.tensor import BlockId, TensorRef, blocks_of
from dyorc.engine.actions import BatchControl, CancelBatch, FeedPart, GrantParts
from dyorc.engine.events import BatchDone, BatchFailed, BatchPart, Event, InputPartsTaken, ReplicaJoined, TensorsLost
from dyorc.replica.batch_results import BatchError
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.ongoing_calls import OngoingCalls
from dyorc.replica.program_lifecycle import Leftovers
from dyorc.replica.program_loop import ProgramLoop
from dyorc.replica.program_loops import ProgramLoops
from dyorc.transport.column_codec import Rows
from dyorc.transport.inbox import Inbox, InputsLostError
from dyorc.transport.outbox import NoRoomError, Outbox

_log = structlog.get_logger("dyorc.cells")


class HostedCalls:
    """Runs the calls of one program that waits or yields. Used on the server's event loop, where its code never runs.

    To the engine it is one replica that holds up to `Program.max_ongoing` batches, each of one call.

    Args:
        executor: The loaded program.
        thread: The loop that has loaded it.
        loops: Where that is from.
        group: The group that it belongs to, if it shares the loop.

    Attributes:
        program: The program's name.
        thread, group: As given.
        inputs: Reads its inputs.
        replica_id: The engine's present name for it.
        num_on_thread: Calls that have ended.
    """

    is_inline = False
    num_inline = 0
    num_run_again = 0

    def __init__(
        self,
        program: Program,
        executor: ProgramExecutor,
        thread: ProgramLoop,
        loops: ProgramLoops,
        context: FleetContext,
        group: ProgramGroup | None = None,
    ) -> None:
        self.program = program.name
        self.thread = thread
        self.group = group
        self._loops = loops
        self.inputs = ProgramInputs(context.tensors, is_writing=False)
        self.replica_id = ""
        self.num_on_thread = 0
        self._executor = executor
        self._context = context
        shares_cores = not program.style.is_async and program.max_ongoing == 1
        self._num_cores = context.num_cores if shares_cores else 0
        self._is_streaming = program.is_streaming
        self._calls = OngoingCalls(executor, thread)
        self._running: dict[int, _HostedCall] = {}
        self._feeding: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._events: deque[Callable[[], Event | None]] = deque()
        self._is_delivering = False
        self._is_over = False
        self._has_noted = False

    # To the engine

    def join(self) -> None:
        """Announces the program."""
        self.replica_id = new_replica_id(self.program)
        self._context.status.joined(self.program, self.replica_id, os.getpid())
        _log.info("replica_joined", program=self.program, replica=self.replica_id, pid=os.getpid(), node=self._context.node)
        self.join_again()

    def join_again(self) -> None:
        """Announces the program under the name it has. Calls that run belong to nobody now: they end."""
        for batch_id, call in self._running.items():
            call.is_void = True
            self._calls.cancel(batch_id)
        self._context.post(ReplicaJoined(self.replica_id, self.program, self._context.node, self._num_cores))

    def close(self) -> None:
        """Reports nothing from now on: the server stops."""
        self._is_over = True

    def leftovers(self) -> Leftovers:
        """Returns what watches whether the loaded program is freed once it is dropped."""
        return Leftovers(self._executor.function)

    def drop(self) -> None:
        """Drops the program, and ends its loop, unless others use it."""
        for batch_id in self._running:
            self._calls.cancel(batch_id)
        self._loops.close(self.thread)
        self._leave()

    def give_up(self) -> None:
        """Drops a program with a call that hangs. Its loop is interrupted, and reports nothing."""
        self._loops.give_up(self.thread)
        self._leave()

    def _leave(self) -> None:
        self._is_over = True
        for call in self._running.values():
            call.is_void = True
        for task in self._feeding.values():
            task.cancel()
        self.inputs.close()
        self._context.status.left(self.replica_id)
        self._note_inputs()

    # Batches

    def hold(self) -> None:
        """Does nothing: it never moves."""

    def report(self, event: Event) -> None:
        """Reports a batch that could not be started."""
        self._context.post(event)

    def run(self, batch: LocalBatch, run_again: Callable[[], None] | None = None) -> None:
        """Starts a batch, which is one call."""
        call = _HostedCall(self, batch, self._results(), self._context.room_wait_s)
        if batch.stored and batch.inbox is None:  # fetched from elsewhere
            columns: Sequence[Rows] = [[row.copy() for row in rows] for rows in batch.columns]
            if lost := self._context.tensors.lost_of(batch.stored):
                self.report(TensorsLost(batch.replica_id, batch.batch_id, lost))
                return
        else:
            columns = batch.columns
        self._running[batch.batch_id] = call
        self._note_inputs()
        arguments = partial(call.arguments, self._executor, columns)
        self._calls.start(batch.batch_id, arguments, call, max_parts=batch.max_parts, span=batch.span, seen=batch.seen)

    def _results(self) -> ProgramResults:
        """Returns where the results of one call go: what it has reserved is its own."""
        tensors = self._context.tensors
        return ProgramResults(self._context.node, Outbox(tensors.exchange.arena, tensors.inline_limit_bytes))

    def control(self, action: BatchControl) -> None:
        """Passes something on to a call. Nothing happens if it has ended."""
        call = self._running.get(action.batch_id)
        if call is None:
            return
        match action:
            case GrantParts(batch_id=batch_id, max_parts=max_parts):
                self._calls.grant(batch_id, max_parts)
            case CancelBatch(batch_id=batch_id):
                self._calls.cancel(batch_id)
            case FeedPart():
                self._feed(call, action)

    # Streams that calls read

    def _feed(self, call: "_HostedCall", action: FeedPart) -> None:
        """Feeds a part, after those before it: those on other nodes are fetched first."""
        key = (action.batch_id, action.stream)
        before = self._feeding.get(key)
        if before is None and self._context.tensors.is_near(action.tensors):
            self._feed_near(call, action)
            return
        task = self._feeding[key] = self._loop.create_task(self._feed_later(call, action, before))
        task.add_done_callback(lambda task: self._feeding.pop(key) if self._feeding.get(key) is task else None)

    async def _feed_later(self, call: "_HostedCall", action: FeedPart, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        if self._context.tensors.is_near(action.tensors):
            self._feed_near(call, action)
            return
        try:
            arrays = [array.copy() for array in await self._context.tensors.fetch(action.tensors)]
        except InputsLostError as error:
            self._lose(call, action.batch_id, error.blocks)
        except Exception as error:
            self._calls.end_stream(action.batch_id, action.stream, error)
        else:
            if lost := self._context.tensors.lost_of(action.tensors):
                self._lose(call, action.batch_id, lost)
            else:
                self._calls.feed(action.batch_id, action.stream, lambda: arrays)

    def _feed_near(self, call: "_HostedCall", action: FeedPart) -> None:
        if action.is_end:
            self._calls.end_stream(action.batch_id, action.stream, action.error)
            return
        try:
            rows, inbox = self.inputs.read([action.tensors], any(tensor.block for tensor in action.tensors))
        except InputsLostError as error:
            self._lose(call, action.batch_id, error.blocks)
        else:
            read = partial(_copied, rows, inbox, partial(self._lose_later, call, action.batch_id))
            self._calls.feed(action.batch_id, action.stream, read)

    def _lose_later(self, call: "_HostedCall", batch_id: int, blocks: Sequence[BlockId]) -> None:
        """Notes on the program's loop that a part is lost."""
        self._loop.call_soon_threadsafe(self._lose, call, batch_id, blocks)

    def _lose(self, call: "_HostedCall", batch_id: int, blocks: Sequence[BlockId]) -> None:
        """Ends a call because a part of what it reads is lost; it will run again."""
        call.lost.extend(blocks)
        self._calls.cancel(batch_id)

    # What calls report

    def post(self, event: Event | Callable[[], Event | None]) -> None:
        """Posts an event, in order, with others that are ready. Any thread.

        Args:
            event: The event, or what returns it on the server's loop; None if there is none.
        """
        self._events.append(event if callable(event) else lambda: event)
        if not self._is_delivering:
            self._is_delivering = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the server's loop is closed
                self._events.clear()

    def _deliver(self) -> None:
        self._is_delivering = False
        while self._events:
            event = self._events.popleft()()
            if event is not None:
                self._context.post(event)
        self._context.flush()

    def end(self, call: "_HostedCall", event: BatchDone | BatchFailed | TensorsLost) -> Event | None:
        """Notes that a call has ended, and returns the event that reports it; None if nobody wants it."""
        batch = call.batch
        self._running.pop(batch.batch_id, None)
        self.num_on_thread += 1
        self._note_inputs()
        if call.lost:
            self.free(event)
            event = TensorsLost(batch.replica_id, batch.batch_id, call.lost)
        return self.unless_void(call, event)

    def unless_void(self, call: "_HostedCall", event: Event) -> Event | None:
        """Returns an event, unless nobody wants it: then its tensors are freed."""
        if not (call.is_void or self._is_over):
            return event
        self.free(event)
        return None

    def free(self, event: Event) -> None:
        """Frees the tensors of an event that is not posted."""
        tensors: list[TensorRef] = []
        if isinstance(event, BatchPart):
            tensors += event.tensors
        elif isinstance(event, BatchDone):
            tensors += [tensor for outputs in event.outputs for tensor in outputs]
        self._context.tensors.free(blocks_of(tensors))

    def _note_inputs(self) -> None:
        """Notes the inputs of all calls that run, in case one of them crashes this process."""
        notes = self._context.notes
        if notes is None:
            return
        calls = [] if self._is_over else [call.batch for call in self._running.values() if call.batch.inputs]
        if calls:
            self._has_noted = True
            notes.begin(
                self.program,
                [each for batch in calls for each in batch.inputs],
                is_suspect=len(calls) == 1 and calls[0].is_suspect,
            )
        elif self._has_noted:
            self._has_noted = False
            notes.end(self.program)


class _HostedCall:
    """Receives what one call makes, on the program's loop (`CallReceiver`).

    Attributes:
        batch: Its inputs.
        lost: Blocks of its inputs that were freed before it had read them: then it has to run again.
        is_void: Whether nobody wants what it makes.
    """

    def __init__(self, owner: HostedCalls, batch: LocalBatch, results: ProgramResults, room_wait_s: float) -> None:
        self.batch = batch
        self.lost: list[BlockId] = []
        self.is_void = False
        self._owner = owner
        self._results = results
        self._room_wait_s = room_wait_s
        self._full_since_s: float | None = None

    @property
    def reserve(self) -> Reserve | None:
        return self._results.reserve

    def arguments(self, executor: ProgramExecutor, columns: Sequence[Rows]) -> dict[str, Any]:
        """Returns the call's arguments without streams.

        Raises:
            InputsLostError: If one was freed while it was read.
        """
        try:
            return executor.arguments(columns, self.batch.statics)
        finally:
            self.batch.done()
            if self.batch.lost:
                raise InputsLostError(self.batch.lost, "they were released while they were read")

    def part(self, index: int, outputs: Sequence[Rows], digest: bytes) -> bool:
        kept = self._keep(outputs)
        if kept is None:
            return False
        event = BatchPart(self.batch.replica_id, self.batch.batch_id, index, kept, digest)
        self._owner.post(lambda: self._owner.unless_void(self, event))
        return True

    def taken(self, stream: int, num_taken: int) -> None:
        event = InputPartsTaken(self.batch.replica_id, self.batch.batch_id, stream, num_taken)
        self._owner.post(lambda: self._owner.unless_void(self, event))

    def done(self, outputs: Sequence[Rows], execute_s: float) -> bool:
        started_s = time.perf_counter()
        kept = self._keep(outputs)
        if kept is None:
            return False
        batch, publish_s = self.batch, time.perf_counter() - started_s
        self._end(BatchDone(batch.replica_id, batch.batch_id, [kept], execute_s, batch.gather_s, None, publish_s, batch.moves))
        return True

    def failed(self, error: BaseException) -> None:
        batch = self.batch
        if isinstance(error, InputsLostError):
            self._end(TensorsLost(batch.replica_id, batch.batch_id, error.blocks))
        elif isinstance(error, NoRoomError):
            message = error.within("the server's arena", self._room_wait_s, batch.room_share)
            self._end(BatchFailed(batch.replica_id, batch.batch_id, "NoRoomError", message, "", is_capacity=True))
        else:
            self._end(BatchError.of(error).event(batch.replica_id, batch.batch_id))

    def _end(self, event: BatchDone | BatchFailed | TensorsLost) -> None:
        self._results.done()
        self._owner.post(lambda: self._owner.end(self, event))

    def _keep(self, outputs: Sequence[Rows]) -> tuple[TensorRef, ...] | None:
        """Copies outputs; None as long as they may wait for room.

        Raises:
            NoRoomError: If there was no room for too long.
            TransportError: If there never will be.
        """
        if not outputs:
            return ()
        try:
            (kept,) = self._results.keep(outputs)
        except NoRoomError as error:
            self._results.check_beside(error.num_bytes, self.batch.stored)
            now_s = time.monotonic()
            if self._full_since_s is None:
                self._full_since_s = now_s
            if now_s - self._full_since_s >= self._room_wait_s * self.batch.room_share:
                raise
            return None
        self._full_since_s = None
        return kept


def _copied(rows: Sequence[Rows], inbox: Inbox | None, lose: Callable[[Sequence[BlockId]], None]) -> list[Array]:
    """Returns the arrays of a part, copied from where they lie.

    Raises:
        InputsLostError: If one was freed meanwhile; `lose` has learned it, too.
    """
    arrays = [column[0, ...].copy() if isinstance(column, np.ndarray) else column[0].copy() for column in rows]
    if inbox is not None:
        try:
            inbox.check()
        except InputsLostError as error:
            lose(error.blocks)
            raise
        finally:
            inbox.done()
    return arrays
