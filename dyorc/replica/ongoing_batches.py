"""The batches of a replica whose program waits or yields: each is one call, and several run side by side."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from dyorc.core.request import shifted
from dyorc.errors import TransportError
from dyorc.replica.batch_receiver import BatchReceiver, ReadyMessages
from dyorc.replica.batch_results import BatchError
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.ongoing_calls import OngoingCalls
from dyorc.replica.program_loop import ProgramLoop
from dyorc.transport.column_codec import ColumnHeader, Frame, Rows, each_row
from dyorc.transport.error_codec import unpack_error
from dyorc.transport.inbox import Inbox, InputsLostError
from dyorc.transport.messages import BatchFailure, BatchRequest, Cancel, InputsLost, PartFeed, PartGrant, ResidentColumn
from dyorc.transport.tiers import TensorHolder


class OngoingBatches:
    """Starts, feeds and ends the batches of one replica. Used on the worker's thread, which alone reads other processes' memory.

    Inputs are copied: batches that run side by side cannot share memory that the next one reuses, nor pages that a program may
    write to.

    Args:
        loop: Where the program was loaded.
        inbox: Reads inputs.
        ready: Takes what batches make.
        room_wait_s: The longest wait of a batch's results for room in a full arena.
    """

    def __init__(
        self, executor: ProgramExecutor, loop: ProgramLoop, inbox: Inbox, ready: ReadyMessages, room_wait_s: float
    ) -> None:
        self._executor = executor
        self._program = executor.program
        self._calls = OngoingCalls(executor, loop)
        self._inbox = inbox
        self._ready = ready
        self._room_wait_s = room_wait_s
        self._batches: dict[int, BatchReceiver] = {}

    @property
    def num_batches(self) -> int:
        """How many have not ended."""
        return len(self._batches)

    @property
    def busy_since_s(self) -> float | None:
        """When the batch that stands still for longest last got on, by the monotonic clock; None if none does anything. Any
        thread.
        """
        since_s = [batch.busy_since_s for batch in list(self._batches.values())]
        return min((at_s for at_s in since_s if at_s is not None), default=None)

    def start(self, request: BatchRequest, frames: Sequence[Frame]) -> None:
        """Starts a batch. One that cannot be started is answered at once."""
        replica_id, batch_id = self._ready.replica_id, request.batch_id
        batch = BatchReceiver(
            request,
            self._ready,
            len(self._program.signature.streams),
            self._batches.pop,
            is_streaming=self._program.is_streaming,
            room_wait_s=self._room_wait_s,
        )
        try:
            tensors = [column for column in request.columns if not isinstance(column, ResidentColumn)]  # it takes no residents
            columns = self._read(batch, tensors, frames, request.holders)
        except InputsLostError as error:
            self._ready.put(InputsLost(replica_id, batch_id, error.blocks, str(error)))
            return
        except TransportError as error:
            failure = BatchError.of(error)
            self._ready.put(BatchFailure(replica_id, batch_id, failure.error_type, failure.message, failure.traceback))
            return
        self._batches[batch_id] = batch
        executor, statics = self._executor, request.statics
        self._calls.start(
            batch_id,
            lambda: executor.arguments(columns, statics),
            batch,
            max_parts=request.max_parts,
            span=request.span,
            seen=shifted(request.seen, time.monotonic_ns()),
        )

    def control(self, message: PartGrant | PartFeed | Cancel, frames: Sequence[Frame]) -> None:
        """Passes something on to a batch. Nothing happens if it has ended."""
        batch = self._batches.get(message.batch_id)
        if batch is None:
            return
        match message:
            case PartGrant(batch_id=batch_id, max_parts=max_parts):
                batch.granted(max_parts)
                self._calls.grant(batch_id, max_parts)
            case Cancel(batch_id=batch_id):
                batch.cancelled()
                self._calls.cancel(batch_id)
            case PartFeed():
                self._feed(batch, message, frames)

    def _feed(self, batch: BatchReceiver, message: PartFeed, frames: Sequence[Frame]) -> None:
        batch_id, stream = message.batch_id, message.stream
        if not 0 <= stream < len(self._program.signature.streams):
            raise TransportError(f"a part for stream {stream} of program {self._program.name!r}, which has no such stream")
        if message.num_parts:
            self._feed_parts(batch, message, frames)
        if message.is_end:
            batch.fed(stream, 0, is_end=True)
            self._calls.end_stream(batch_id, stream, None if message.error is None else unpack_error(*message.error))

    def _feed_parts(self, batch: BatchReceiver, message: PartFeed, frames: Sequence[Frame]) -> None:
        """Passes parts on; ends the batch, or the stream, if they cannot be read."""
        batch_id, stream, num_parts = message.batch_id, message.stream, message.num_parts
        batch.fed(stream, num_parts)
        try:
            columns = self._read(batch, message.columns, frames, message.holders)
            if any(len(column) != num_parts for column in columns):
                raise TransportError(f"{num_parts} parts came as {[len(column) for column in columns]}")
        except InputsLostError as error:
            batch.lost = error
            batch.cancelled()
            self._calls.cancel(batch_id)
        except TransportError as error:
            self._calls.end_stream(batch_id, stream, error)
        else:
            self._calls.feed_all(batch_id, stream, list(zip(*map(each_row, columns), strict=True)))

    def _read(
        self, batch: BatchReceiver, headers: Sequence[ColumnHeader], frames: Sequence[Frame], holders: Sequence[TensorHolder]
    ) -> list[Rows]:
        """Returns columns in memory of their own. Errors are those of `Inbox.read`."""
        started_s = time.perf_counter()
        try:
            columns = [_owned(rows) for rows in self._inbox.read(headers, frames, holders)]
            self._inbox.check()
        finally:
            self._inbox.done()
            moves = self._inbox.moves.take()
        batch.gathered(time.perf_counter() - started_s, moves)
        return columns

    def send_ready(self, send: Callable[[list[Frame]], None]) -> None:
        """Sends what batches have made so far."""
        for message in self._ready.take():
            send(message)

    def abandon_all(self, free: Callable[[], None]) -> None:
        """Ends all batches, and drops what they make: nobody knows them now.

        Args:
            free: Frees what they have written.
        """
        with self._ready.writing:
            for batch in list(self._batches.values()):
                batch.void()
            self._ready.clear()
            free()
        for batch_id in list(self._batches):
            self._calls.cancel(batch_id)


def _owned(rows: Rows) -> Rows:
    """Returns a column that the program may keep and write to."""
    if isinstance(rows, np.ndarray):
        return rows if rows.flags.writeable else rows.copy()
    if len(rows) == 1 and rows[0].dtype != object:
        return np.array(rows[0])[np.newaxis]
    return [row if row.dtype == object or row.flags.writeable else row.copy() for row in rows]
