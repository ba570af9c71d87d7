"""The contract of the tiers: ways to get a tensor's bytes from the process that holds them to one that needs them.

`view_tiers`, `zmq_tensors` and `grpc_tensors` implement it. A tensor's bytes are in a block of its holder's arena (`arena`),
which only the holder writes, and which keeps them until the engine says that they are no longer needed. So a tier only reads,
from any number of processes at once, and may read again if it failed half-way.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from dyorc.engine.request_trace import Move
from dyorc.errors import TransportError

MAX_COUNT = 2**63 - 1
"""Largest number on any wire."""


class ByteSpan(msgspec.Struct, frozen=True, array_like=True):
    """Contiguous bytes within one block.

    Attributes:
        block: Number of the block, never used again by its holder.
        offset: Where they begin, counted from the start of the holder's arena file.
        num_bytes: How many there are.
    """

    block: int
    offset: int
    num_bytes: int


class TensorHolder(msgspec.Struct, frozen=True, array_like=True):
    """A process that holds tensors, and how to reach it.

    Attributes:
        holder_id: Its name; a replica's is its replica id.
        node: Where it runs.
        arena: File name of its arena in its shared memory.
        zmq_address: Where its `ZmqTensorServer` listens, e.g. ``tcp://10.0.0.7:4711``; empty if it has none.
        grpc_address: Where its `GrpcTensorServer` listens, e.g. ``10.0.0.7:4712``; empty if it has none.
        probe: Bytes of its arena that other nodes fetch to measure the time; None if they cannot fetch any.
        memory: The name of its arena's shared memory: processes with the same shared memory can read it.
    """

    holder_id: str
    node: str
    arena: str
    zmq_address: str = ""
    grpc_address: str = ""
    probe: ByteSpan | None = None
    memory: str = ""


class TensorTier(Protocol):
    """One way to read other processes' tensors. Blocking; each thread has its own."""

    @property
    def name(self) -> str:
        """Its name for people."""
        ...

    def reaches(self, holder: TensorHolder) -> bool:
        """Returns whether this way leads to a holder."""
        ...

    def fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        """Copies the bytes of `spans` into buffers of the same lengths.

        Raises:
            TensorLostError: If the holder does not have a block, or no longer, or does not answer in time.
            TransportError: If the answer is malformed.
        """
        ...

    def forget(self, holder_id: str) -> None:
        """Closes what is open for a holder that is gone."""
        ...

    def close(self) -> None:
        """Closes everything."""
        ...


class ViewTier(TensorTier, Protocol):
    """A tier that can also show the bytes in place, without a copy."""

    def view(self, holder: TensorHolder, span: ByteSpan, is_writable: bool) -> memoryview:
        """Returns the bytes of a span; a writable view is private to this process: no other process sees what is written.

        Raises:
            TensorLostError: If the holder does not have the block, or no longer, or is gone.
            TransportError: If the span is not within the block.
        """
        ...

    def is_intact(self, holder: TensorHolder, block: int) -> bool:
        """Returns whether a block that was viewed is still what it was."""
        ...

    def restore(self, holder: TensorHolder, span: ByteSpan) -> None:
        """Resets a writable view after use: the next one shows what the holder has there."""
        ...


class BlockSource(Protocol):
    """What a server reads: the arena of its process. Called by the server's threads."""

    def read_only(self, block_id: int, offset: int, num_bytes: int) -> memoryview:
        """Returns bytes of a block, in place.

        Raises:
            TensorLostError: If the block is not there, or no longer.
            TransportError: If the bytes are not all within the block.
        """
        ...

    def is_intact(self, block_id: int) -> bool:
        """Returns whether the block is still there, so that what was read from it so far is right."""
        ...


def check_buffers(spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> list[memoryview]:
    """Returns the buffers as plain bytes.

    Raises:
        TransportError: If they do not fit the spans, or cannot be written to.
    """
    if len(spans) != len(into):
        raise TransportError(f"{len(spans)} spans are to come into {len(into)} buffers")
    for span, buffer in zip(spans, into, strict=True):
        if not (0 <= span.block <= MAX_COUNT and 0 <= span.offset <= MAX_COUNT):
            raise TransportError(f"there is no block {span.block}, or nothing at its offset {span.offset}")
        if buffer.nbytes != span.num_bytes or buffer.readonly or not buffer.c_contiguous:
            kind = "read-only " * buffer.readonly + "scattered " * (not buffer.c_contiguous)
            raise TransportError(f"{span.num_bytes} bytes of block {span.block} are to come into {buffer.nbytes} {kind}bytes")
    # A cast of no bytes fails for shapes like (0, 3)
    return [buffer.cast("B") if buffer.nbytes else memoryview(bytearray()) for buffer in into]


MESSAGE = "message"
"""Not a tier: inputs that came with the batch's message."""
ON_DEVICE = "device"
"""Inputs that lay on the program's device."""
HERE = "process"
"""Inputs that were already in the process."""


class InputMoves:
    """Counts how the inputs of batches came: by which tier, how many bytes, how long that took. One thread."""

    def __init__(self) -> None:
        self._by_tier: dict[str, Move] = {}

    def add(self, tier: str, num_bytes: int, took_s: float = 0.0) -> None:
        """Adds tensors that came by a tier."""
        before = self._by_tier.get(tier)
        if before is not None:
            num_bytes, took_s = before.num_bytes + num_bytes, before.took_s + took_s
        self._by_tier[tier] = Move(tier, num_bytes, took_s)

    def take(self) -> tuple[Move, ...]:
        """Returns one entry for each tier, and starts again from 0."""
        if not self._by_tier:
            return ()
        taken = tuple(self._by_tier.values())
        self._by_tier.clear()
        return taken
