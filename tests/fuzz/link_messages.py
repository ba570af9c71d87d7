"""What a peer sends over a link, read as the orchestrator and a replica do.

An input is a message: how many frames, the length of the header and of each frame, and then all of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from dyorc.core.arrays import Array
from dyorc.core.tensor import DType
from dyorc.errors import TransportError
from dyorc.transport.column_codec import Column, ColumnHeader, Frame, Rows, StoredColumn, StoredRows
from dyorc.transport.inbox import Inbox
from dyorc.transport.message_packing import unpack
from dyorc.transport.messages import (
    BatchFailure,
    BatchReply,
    BatchRequest,
    Forget,
    InputsLost,
    Loading,
    Message,
    Packed,
    Park,
    Parked,
    PartFeed,
    PartReply,
    ReleaseBlocks,
    ReplicaHello,
    ReplicaWelcome,
    StageSpans,
    UnstageTensors,
    Warm,
    decode,
    encode,
)
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import ByteSpan, TensorHolder
from dyorc.transport.unix_framing import MessageReader, pack
from tests.exchanges import TensorPath, tensor_path
from tests.fuzz.contract import FuzzTarget, check

_ALIGNMENT = 64
"""A block whose tensors differ in length is a multiple of this."""

MAX_ROWS = 2**17
"""Far more calls than a batch has; what a message makes of itself beyond that would be an attack on memory."""


class PeerMessages:
    """Takes any message. Holds one block of numbers and one of texts that messages may point to.

    Raises:
        AssertionError: If a message made somebody read outside of its tensors.
    """

    def __init__(self, path: TensorPath) -> None:
        self._path = path
        self._routes: Routes = path.consumer.routes()
        numbers = np.arange(96, dtype=np.float32).reshape(4, 24)
        texts = [np.array([b"some", b"", b"text"], object), np.array([b"more"], object)]
        self.columns, _ = path.producer.outbox.write([numbers, texts])
        self.blocks = [part for header in self.columns if isinstance(header, StoredColumn) for part in header.parts]
        self._spans = list(map(_whole_block, self.columns))

    @property
    def producer(self) -> TensorHolder:
        """The holder of the blocks."""
        return self._path.producer.holder

    def take(self, header: bytes, frames: Sequence[bytes], is_refusal_a_failure: bool = False) -> None:
        """Reads a message and all that it points to. It may only raise `TransportError`, or not even that."""
        try:
            message = decode(header)
            decode(encode(message))
            for each, own in unpack(message, frames):
                if isinstance(each, BatchRequest | PartFeed):
                    self._as_replica(each, own)
                elif isinstance(each, BatchReply | PartReply):
                    self._as_orchestrator(each, own)
        except TransportError:
            if is_refusal_a_failure:
                raise

    def _as_replica(self, message: BatchRequest | PartFeed, frames: Sequence[bytes]) -> None:
        inbox = Inbox(self._routes)
        buffers: list[Frame] = [memoryview(bytearray(frame)) for frame in frames]
        try:
            columns = inbox.read(message.columns, buffers, message.holders)
            self._check_bounds(columns, buffers, message.holders)
            inbox.check()
        finally:
            inbox.done()

    def _as_orchestrator(self, message: BatchReply | PartReply, frames: Sequence[bytes]) -> None:
        """Has the orchestrator and another replica read what this one claims to have written."""
        calls = self._path.tensors.refs("producer", message.columns, frames)
        assert len(calls) <= MAX_ROWS
        if calls:
            headers, parts, holders = self._path.tensors.pack(calls)
            encode(BatchRequest(1, tuple(headers), (), holders))
            self._as_replica(BatchRequest(1, tuple(headers), (), holders), [bytes(part) for part in parts])

    def _check_bounds(self, columns: Sequence[Rows], frames: Sequence[Frame], holders: Sequence[TensorHolder]) -> None:
        """Checks that all that a program would see lies within the frames or within a block."""
        ranges = [_bounds(np.frombuffer(frame, np.uint8)) for frame in frames]
        for holder in holders:
            if holder.arena == self._path.producer.arena.name:  # by whatever name; nothing is published in the others
                ranges += self._block_bounds(holder)
        for array in _arrays(columns):
            if array.size and array.dtype != object:
                first, end = _bounds(array)
                assert any(low <= first and end <= high for low, high in ranges), "read beyond what was sent"

    def _block_bounds(self, holder: TensorHolder) -> Iterator[tuple[int, int]]:
        """Yields where the blocks lie in memory, in both mappings."""
        tier = self._routes.viewer(holder)
        if tier is None:
            return
        for span in self._spans:
            for is_writable in (False, True):
                yield _bounds(np.frombuffer(tier.view(holder, span, is_writable), np.uint8))

    def seeds(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yields messages of every kind that make sense, with their frames."""
        holder = self._path.producer.holder
        small = Column(DType.FP32, ((2,),), 1)
        texts = Column(DType.BYTES, ((1,),))
        numbers, frames = self.blocks[0], [b"\0" * 8, b"\1\0\0\0x"]
        assert isinstance(numbers, StoredRows)
        row = StoredRows(0, numbers.block, numbers.offset, numbers.num_bytes, (24,), 1, 24)
        view = StoredRows(0, row.block, row.offset, row.num_bytes, (5, 2), 1, 24, 22, (-4, 1))
        mixed = StoredColumn(DType.FP32, (row, small, view))
        messages: list[tuple[Message, list[bytes]]] = [
            (ReplicaHello("producer", "program", 1, holder), []),
            (Loading("producer", "program"), []),
            (BatchRequest(1, (*self.columns, small, texts), (1, 2.0, "text", True), (holder,)), frames),
            (BatchRequest(1, (mixed,), (), (holder,)), frames[:1]),
            (BatchReply("producer", 1, (small, texts), 0.1), frames),
            (BatchReply("producer", 1, self.columns[:1], 0.1), []),
            (BatchReply("producer", 1, self.columns[1:], 0.1), []),
            (BatchFailure("producer", 1, "ValueError", "bad", "line 1", True), []),
            (InputsLost("producer", 1, (("producer", 1),), "gone"), []),
            (ReplicaWelcome(), []),
            (ReleaseBlocks((1, 2)), []),
            (Forget("producer"), []),
            (StageSpans(holder, (ByteSpan(1, 4096, 64),)), []),
            (UnstageTensors((("producer", 1),)), []),
            (Parked("producer", "program", 1, holder), []),
            (Warm(), []),
            (Park(), []),
            (PartReply("producer", 1, 0, (small, texts), (b"12345678",)), frames),
            (PartFeed(1, 0, 0, 1, (*self.columns, small), (holder,), True, ("program", "bad", {"a": 1})), frames[:1]),
            (
                Packed((BatchReply("producer", 1, (small,), 0.1), BatchFailure("producer", 2, "E", "", "", False)), (1, 0)),
                frames[:1],
            ),
        ]
        for message, parts in messages:
            yield encode(message), parts


def _arrays(columns: Sequence[Rows]) -> Iterator[Array]:
    for rows in columns:
        yield from [rows] if isinstance(rows, np.ndarray) else rows


def _whole_block(header: ColumnHeader) -> ByteSpan:
    """Returns all of the block that a column lies in, with the gaps between its tensors."""
    assert isinstance(header, StoredColumn)
    parts = [part for part in header.parts if isinstance(part, StoredRows)]
    first, last = parts[0], parts[-1]
    length = last.offset - first.offset + last.num_rows * last.num_bytes
    return ByteSpan(first.block, first.offset, -(-length // _ALIGNMENT) * _ALIGNMENT)


def _bounds(array: Array) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


_MAX_FRAMES = 3


def join(header: bytes, frames: Sequence[bytes]) -> bytes:
    """Returns a message as one input of the fuzzer."""
    parts = [header, *frames]
    lengths = b"".join(len(part).to_bytes(2, "little") for part in parts)
    return bytes([len(frames)]) + lengths + b"".join(parts)


def split(data: bytes) -> list[bytes]:
    """Undoes `join`, and makes something of any input."""
    num_parts = 1 + (data[0] if data else 0) % (_MAX_FRAMES + 1)
    at = 1 + 2 * num_parts
    parts: list[bytes] = []
    for number in range(num_parts):
        length = int.from_bytes(data[1 + 2 * number : 3 + 2 * number], "little")
        parts.append(data[at : at + length])
        at += length
    return parts


def build(folder: Path) -> FuzzTarget:
    """Returns the target."""
    stack = ExitStack()
    reader = PeerMessages(stack.enter_context(tensor_path(str(folder), arena_bytes=2**20)))

    def read(data: bytes) -> None:
        header, *frames = split(data)
        reader.take(header, frames, is_refusal_a_failure=True)

    seeds = tuple(join(header, frames) for header, frames in reader.seeds())
    return FuzzTarget(name="link_messages", read=read, errors=(TransportError,), seeds=seeds, close=stack.close)


# The stream of a Unix socket


def _messages_in(data: bytes, piece_bytes: int) -> tuple[list[list[bytes]], str | None]:
    receiver = MessageReader()
    messages: list[list[bytes]] = []
    at = 0
    while at < len(data) and receiver.error is None:
        space = receiver.space()[:piece_bytes]
        piece = data[at : at + len(space)]
        space[: len(piece)] = piece
        at += len(piece)
        messages += [[bytes(frame) for frame in frames] for frames in receiver.take(len(piece))]
    return messages, None if receiver.error is None else str(receiver.error)


def _read_stream(data: bytes) -> None:
    whole = _messages_in(data, 2**30)
    check(_messages_in(data, 7) == whole, "in pieces of 7 bytes it is read as other messages")
    for frames in whole[0]:
        packed = b"".join(pack(frames))
        check(_messages_in(packed, 2**30) == ([frames], None), f"{frames} came back otherwise")


def build_stream() -> FuzzTarget:
    """Returns the target for the stream of a Unix socket."""
    messages = [[b"header"], [b"h", b"x" * 40, b""], [b"", b"", b""]]
    seeds = [b"".join(pack(frames)) for frames in messages]
    return FuzzTarget(
        name="unix_streams",
        read=_read_stream,
        errors=(),
        seeds=(*seeds, b"".join(seeds)),
        words=(b"DyO1", b"\0" * 8, b"\xff" * 8),
    )
