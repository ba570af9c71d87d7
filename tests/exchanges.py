"""The tensor path in one process: a producer, the orchestrator and a consumer, each with its own arena.

They exchange what would go over a socket: bytes that share no memory.
"""

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.config import TransportConfig
from dyorc.core.tensor import TensorRef, blocks_of
from dyorc.transport.arena_views import ArenaView
from dyorc.transport.column_codec import ColumnHeader, Frame, Rows
from dyorc.transport.inbox import Inbox
from dyorc.transport.messages import BatchColumn, BatchReply, BatchRequest, ResidentColumn, decode, encode
from dyorc.transport.tensor_path import TensorExchange
from dyorc.transport.tiers import ByteSpan, TensorHolder

NODE, FAR = "here", "there"
ARENA_BYTES = 4 * 2**20

Call = tuple[TensorRef, ...]


def over_the_wire(frames: Sequence[Frame]) -> list[Frame]:
    """Returns frames as received by a socket: the same bytes, in memory that belongs to the receiver."""
    return [memoryview(bytearray(frame)) for frame in frames]


def of_tensors(columns: Sequence[BatchColumn]) -> list[ColumnHeader]:
    """Returns the columns that are not residents."""
    return [column for column in columns if not isinstance(column, ResidentColumn)]


def exchange(
    folder: str, holder_id: str, node: str = NODE, *, inline_limit_bytes: int = 0, arena_bytes: int = ARENA_BYTES
) -> TensorExchange:
    """Makes a process's end of the tensor path, to be entered."""
    config = TransportConfig(arena_folder=folder, arena_bytes=arena_bytes, inline_limit_bytes=inline_limit_bytes)
    return TensorExchange(holder_id, node, config)


@dataclass(frozen=True, slots=True)
class TensorPath:
    """Three processes, with only their memory simulated."""

    producer: TensorExchange
    orchestrator: TensorExchange
    consumer: TensorExchange
    tensors: Tensors
    inbox: Inbox

    def limit(self, inline_limit_bytes: int) -> None:
        """Sets the size up to which tensors travel inside messages from now on."""
        for end in (self.producer, self.orchestrator, self.consumer):
            end.outbox.inline_limit_bytes = inline_limit_bytes
        self.tensors.inline_limit_bytes = inline_limit_bytes

    def publish(self, columns: Sequence[Rows]) -> list[Call]:
        """Returns what the orchestrator knows of a batch's outputs, call by call."""
        headers, frames = self.producer.outbox.write(columns)
        reply = decode(encode(BatchReply(self.producer.holder.holder_id, 1, headers, 0.0)))
        assert isinstance(reply, BatchReply)
        return self.tensors.refs(reply.replica_id, of_tensors(reply.columns), over_the_wire(frames))

    def request(self, calls: Sequence[Call]) -> tuple[BatchRequest, list[Frame]]:
        """Returns the batch of these calls, as the consumer receives it."""
        headers, frames, holders = self.tensors.pack(calls)
        request = decode(encode(BatchRequest(1, tuple(headers), (), holders)))
        assert isinstance(request, BatchRequest)
        return request, over_the_wire(frames)

    def deliver(self, calls: Sequence[Call]) -> list[Rows]:
        """Returns the columns of these calls, as the consumer reads them. Valid until `inbox.done`."""
        request, frames = self.request(calls)
        return self.inbox.read(of_tensors(request.columns), frames, request.holders)

    def release(self, calls: Sequence[Call]) -> None:
        """Releases tensors that are no longer needed."""
        blocks = sorted(set(blocks_of(tensor for call in calls for tensor in call)))
        self.tensors.free(blocks)
        for holder_id, block in blocks:
            if holder_id == self.producer.holder.holder_id:
                assert self.producer.arena.free(block)

    def check_empty(self) -> None:
        """Checks that nothing is left in any arena."""
        left = {end.holder.holder_id: end.arena.num_blocks for end in (self.producer, self.orchestrator, self.consumer)}
        assert not any(left.values()), f"blocks are left over: {left}"


@contextlib.contextmanager
def tensor_path(folder: str, *, inline_limit_bytes: int = 0, arena_bytes: int = ARENA_BYTES) -> Generator[TensorPath]:
    """Opens a producer, the orchestrator and a consumer on one node. Everything is stored by default."""
    with contextlib.ExitStack() as stack:
        producer, orchestrator, consumer = (
            stack.enter_context(exchange(folder, name, inline_limit_bytes=inline_limit_bytes, arena_bytes=arena_bytes))
            for name in ("producer", OWN, "consumer")
        )
        tensors = Tensors(orchestrator)
        tensors.open()
        stack.callback(tensors.close)
        for end in (producer, consumer):
            tensors.join(end.holder)
        yield TensorPath(
            producer, orchestrator, consumer, tensors, Inbox(stack.enter_context(contextlib.closing(consumer.routes())))
        )


class CopyingTier:
    """Acts as a wire: leads to holders of another node, and can only copy.

    Attributes:
        num_fetches: Number of fetches.
    """

    name = "copying"

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.num_fetches = 0

    def reaches(self, holder: TensorHolder) -> bool:
        """Returns whether a holder is on the other node."""
        return holder.node == FAR

    def fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        """Copies bytes from the arena's file."""
        self.num_fetches += 1
        view = ArenaView(self._folder, holder.arena)
        try:
            for span, buffer in zip(spans, into, strict=True):
                buffer[:] = view.read_only(span.block, span.offset, span.num_bytes)
        finally:
            view.close()

    def forget(self, holder_id: str) -> None:
        """Does nothing, since nothing is kept open."""

    def close(self) -> None:
        """Does nothing, since nothing is kept open."""
