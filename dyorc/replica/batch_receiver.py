"""What becomes of a batch that waits or yields, on its way from the program's loop to the orchestrator.

What a call returns or yields is copied at once, into the arena or into frames, since the program may write to it afterwards. The
message about it waits for the worker's thread, which is woken: it alone owns the link, and sends all that is there together.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from dyorc.authoring.array_memory import Reserve
from dyorc.engine.request_trace import Move
from dyorc.replica.batch_results import BatchError
from dyorc.transport.column_codec import ColumnHeader, Frame, Rows
from dyorc.transport.inbox import InputsLostError
from dyorc.transport.message_packing import Framed, join_rows, pack
from dyorc.transport.messages import (
    BatchFailure,
    BatchReply,
    BatchRequest,
    InputsLost,
    PackedMessage,
    PartReply,
    PartsTaken,
)
from dyorc.transport.outbox import NoRoomError, Outbox
from dyorc.transport.wake_up import WakeUp

_REPORT_S = 0.01
"""How far a call has read is reported at least this often while it reads: a program that takes its time for each part is not held
up, and the limit of its time counts from the last report."""


class ReadyMessages:
    """Messages for the orchestrator, from the program's loop to the worker's thread.

    Args:
        replica_id: Who sends them.
        outbox: For the program's loop alone.
        wake: Wakes the worker's thread.

    Attributes:
        replica_id: As given.
        writing: Held while something is written into the arena. Who frees all of it has to hold it, too.
    """

    def __init__(self, replica_id: str, outbox: Outbox, wake: WakeUp) -> None:
        self.replica_id = replica_id
        self.writing = threading.Lock()
        self._outbox = outbox
        self._wake = wake
        self._messages: deque[Framed] = deque()

    def put(self, message: PackedMessage, frames: Sequence[Frame] = ()) -> None:
        """Hands a message over. Any thread."""
        self._messages.append((message, frames))
        self._wake.set()

    def write(self, outputs: Sequence[Rows]) -> tuple[tuple[ColumnHeader, ...], list[Frame]]:
        """Copies outputs, into the arena or into frames.

        Raises:
            NoRoomError: If the arena has no room now.
            TransportError: If it never will have, or types are mixed.
        """
        try:
            columns, frames = self._outbox.write(outputs)
        except NoRoomError as error:
            self._outbox.check_beside(error.num_bytes, 0)
            raise
        return columns, [bytes(frame) for frame in frames]

    def take(self) -> Iterator[list[Frame]]:
        """Yields all that is there, as few messages. The worker's thread."""
        messages: list[Framed] = []
        while self._messages:
            messages.append(self._messages.popleft())
        return pack(messages if len(messages) < 2 else _condensed(messages))

    def clear(self) -> None:
        """Drops all messages."""
        self._messages.clear()


def _condensed(messages: Iterable[Framed]) -> Iterator[Framed]:
    """Yields fewer messages that say the same: the parts of a batch become one, and of how far it has read only the last counts.
    Each takes the place of the first; nothing else of that batch is in between, since its end is its last message.
    """
    parts: dict[int, list[tuple[PartReply, Sequence[Frame]]]] = {}
    kept: dict[tuple[int, int], Framed] = {}
    for number, (message, frames) in enumerate(messages):
        match message:
            case PartReply(batch_id=batch_id):
                replies = parts.setdefault(batch_id, [])
                if not replies:
                    kept[-1, batch_id] = message, frames
                replies.append((message, frames))
            case PartsTaken(batch_id=batch_id, stream=stream):
                kept[stream, batch_id] = message, frames
            case _:
                kept[-2, number] = message, frames
    for message, frames in kept.values():
        if isinstance(message, PartReply):
            yield from _joined_parts(parts[message.batch_id])
        else:
            yield message, frames


def _joined_parts(replies: Sequence[tuple[PartReply, Sequence[Frame]]]) -> Sequence[tuple[PartReply, Sequence[Frame]]]:
    """Returns parts of one batch as one message, if they are alike."""
    first, _ = replies[0]
    joined = None if len(replies) == 1 else join_rows([(reply.columns, frames) for reply, frames in replies])
    if joined is None:
        return replies
    columns, frames = joined
    digests = tuple([digest for reply, _ in replies for digest in reply.digests])
    return [(PartReply(first.replica_id, first.batch_id, first.index, columns, digests), frames)]


class BatchReceiver:
    """Receives what one batch makes, on the program's loop (`CallReceiver`).

    Args:
        num_streams: How many streams it reads.
        is_streaming: Whether it yields.
        room_wait_s: The longest wait for room in a full arena.
        ended: Called with the batch's number once it has ended.

    Attributes:
        lost: Inputs that could not be read, which is what it answers once it has ended.
    """

    reserve: Reserve | None = None
    """A generator may go on writing to memory that it has yielded, or that was given to a batch which is void by now."""

    def __init__(
        self,
        request: BatchRequest,
        ready: ReadyMessages,
        num_streams: int,
        ended: Callable[[int], object],
        *,
        is_streaming: bool,
        room_wait_s: float,
    ) -> None:
        self._batch_id = request.batch_id
        self._ready = ready
        self._ended = ended
        self._is_streaming = is_streaming
        self._max_parts = request.max_parts
        self._num_parts = 0
        self._num_fed: list[float] = [0] * num_streams
        self._num_parts_fed = [0] * num_streams
        self._num_taken = [0] * num_streams
        self._num_reported = [0] * num_streams
        self._most_ahead = [0] * num_streams
        self._reported_s = time.monotonic()
        self._room_wait_s = room_wait_s
        self._room_share = request.room_share
        self._full_since_s: float | None = None
        self._moved_s = time.monotonic()
        self._is_cancelled = False
        self._is_void = False
        self._gather_s = 0.0
        self._moves: tuple[Move, ...] = ()
        self.lost: InputsLostError | None = None

    # The program's loop

    def part(self, index: int, outputs: Sequence[Rows], digest: bytes) -> bool:
        """Sends a part, unless the batch is cancelled, so that nobody needs it."""
        with self._ready.writing:
            if not (self._is_void or self._is_cancelled):
                written = self._write(outputs)
                if written is None:
                    return False
                columns, frames = written
                digests = (digest,) if digest else ()
                self._ready.put(PartReply(self._ready.replica_id, self._batch_id, index, columns, digests), frames)
        self._num_parts = index + 1
        self._moved_s = time.monotonic()
        return True

    def taken(self, stream: int, num_taken: int) -> None:
        """Notes how far the program has read, and reports it: after half of what it may be fed ahead, so that a long stream costs
        few messages; before it waits for more; and as often as the limit of its time has to be restarted.
        """
        self._num_taken[stream] = num_taken
        now_s = self._moved_s = time.monotonic()
        num_more = num_taken - self._num_reported[stream]
        is_waiting = num_taken >= self._num_parts_fed[stream]
        if 2 * num_more < self._most_ahead[stream] and not is_waiting and now_s - self._reported_s < _REPORT_S:
            return
        self._num_reported[stream] = num_taken
        self._reported_s = now_s
        self._put(PartsTaken(self._ready.replica_id, self._batch_id, stream, num_taken))

    def done(self, outputs: Sequence[Rows], execute_s: float) -> bool:
        """Sends the result."""
        started_s = time.perf_counter()
        with self._ready.writing:
            if not (self._is_void or self.lost):
                written = self._write(outputs)
                if written is None:
                    return False
                columns, frames = written
                times = execute_s, self._gather_s, None, time.perf_counter() - started_s
                self._ready.put(BatchReply(self._ready.replica_id, self._batch_id, columns, *times, self._moves), frames)
        self._end()
        return True

    def failed(self, error: BaseException) -> None:
        """Sends why there is no result."""
        failure = BatchError.of(error)
        message = failure.error_type, failure.message, failure.traceback
        if isinstance(error, NoRoomError):
            message = failure.error_type, error.within("the arena of a replica", self._room_wait_s, self._room_share), ""
        if not self.lost:
            is_capacity = isinstance(error, NoRoomError)
            at = self._ready.replica_id, self._batch_id
            self._put(BatchFailure(*at, *message, is_capacity=is_capacity, input_at=failure.input_at))
        self._end()

    def _end(self) -> None:
        if self.lost is not None:
            self._put(InputsLost(self._ready.replica_id, self._batch_id, self.lost.blocks, str(self.lost)))
        self._ended(self._batch_id)

    def _put(self, message: PackedMessage) -> None:
        with self._ready.writing:
            if not self._is_void:
                self._ready.put(message)

    def _write(self, outputs: Sequence[Rows]) -> tuple[tuple[ColumnHeader, ...], list[Frame]] | None:
        """Returns the columns of outputs; None as long as they may wait for room. Errors are those of `ReadyMessages.write`."""
        try:
            written = self._ready.write(outputs)
        except NoRoomError:
            now_s = time.monotonic()
            if self._full_since_s is None:
                self._full_since_s = now_s
            if now_s - self._full_since_s >= self._room_wait_s * self._room_share:
                raise
            return None
        self._full_since_s = None
        return written

    # The worker's thread

    def gathered(self, gather_s: float, moves: tuple[Move, ...]) -> None:
        """Notes how long it took to read inputs, and how they came."""
        self._gather_s += gather_s
        self._moves += moves

    def granted(self, max_parts: int) -> None:
        """Notes that it may send more parts."""
        if self._num_parts >= self._max_parts:
            self._moved_s = time.monotonic()
        self._max_parts = max(self._max_parts, max_parts)

    def fed(self, stream: int, num_parts: int, *, is_end: bool = False) -> None:
        """Notes that there is more to read."""
        if self._num_taken[stream] >= self._num_fed[stream]:
            self._moved_s = time.monotonic()
        num_fed = self._num_parts_fed[stream] = self._num_parts_fed[stream] + num_parts
        self._most_ahead[stream] = max(self._most_ahead[stream], num_fed - self._num_reported[stream])
        self._num_fed[stream] += float("inf") if is_end else num_parts

    def cancelled(self) -> None:
        """Notes that it has to end, and so no longer waits for anything."""
        if not self._is_cancelled:
            self._moved_s = time.monotonic()
            self._is_cancelled = True

    def void(self) -> None:
        """Drops all that it makes from now on, since nobody knows it now. Hold `ReadyMessages.writing`."""
        self._is_void = True
        self.cancelled()

    # Any thread

    @property
    def busy_since_s(self) -> float | None:
        """When it last got on, by the monotonic clock; None while it waits for others: for parts of what it reads, or to be
        allowed to send more.
        """
        if not self._is_cancelled:
            if self._is_streaming and self._num_parts >= self._max_parts:
                return None
            if any(taken >= fed for taken, fed in zip(self._num_taken, self._num_fed, strict=True)):
                return None
        return self._moved_s
