"""Gets tensors from rank to rank over DyOrc's own tensor path, where a plan's edges say so.

    static     the target has a slot in its arena; the source writes the message there, and the target computes with it where it
               lies
    dynamic    the source puts the message into a block of its arena, and that block's place and shapes into a small slot of the
               target; the target computes with it where it lies
    grpc       the target asks the source's server for the message, which answers when there is one

A message in shared memory is let go when the last tensor that lies in it is gone: only then its place is written again. Each lane
carries one message at a time.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from dyorc.config import TransportConfig
from dyorc.errors import TransportError
from dyorc.planner.plan import ChannelKind
from dyorc.planner.runtime.channel_endpoints import LENGTH_BYTES, ChannelEndpoints, Outgoing
from dyorc.planner.runtime.links import LinkLostError, as_bytes
from dyorc.planner.runtime.message_lanes import MessageLane, places_of
from dyorc.transport.arena import ArenaBlock
from dyorc.transport.tiers import ByteSpan, TensorHolder

Kind: TypeAlias = tuple[tuple[int, ...], torch.dtype]
"""The shape and the type of a tensor in a message."""


class Media:
    """Sends and receives over one rank's ends. Several threads may, each over its own lanes.

    Args:
        ends: Have been opened.
        timeout_s: How long a rank waits for another.

    Attributes:
        copied_bytes: What has been copied within this process.
    """

    def __init__(self, ends: ChannelEndpoints, timeout_s: float) -> None:
        self._ends = ends
        self._timeout_s = timeout_s
        self._blocks: dict[int, ArenaBlock] = {}  # of dynamic messages that were sent, by lane
        self._tiers: dict[tuple[int, int], Any] = {}
        self._live: set[int] = set()  # where messages begin that are still used
        self._counting = threading.Lock()
        self._counts: dict[int, int] = {}
        self.copied_bytes = 0

    def close(self) -> None:
        """Releases everything. A message in use stays until its last reader is gone."""
        for tier in self._tiers.values():
            tier.close()
        self._ends.close()

    # -- sending ---------------------------------------------------------------------------------------------------------------

    def send(self, lane: MessageLane, tensors: Sequence[torch.Tensor]) -> None:
        """Sends a message. Waits only if the one before in the same place is still used.

        Raises:
            LinkLostError: The target does not let go of the one before, or is gone.
        """
        if not any(tensor.numel() for tensor in tensors):
            return
        try:
            match lane.edge.kind:
                case ChannelKind.STATIC:
                    slot = self._ends.slots[(*lane.edge.pair, lane.edge.slot)]
                    self._write(slot.begin(self._timeout_s), tensors)
                    slot.fill()
                case ChannelKind.DYNAMIC:
                    self._send_dynamic(lane, tensors)
                case ChannelKind.GRPC:
                    self._ends.outgoing.put(lane.number, self._number_of(lane), self._pack(tensors))
                case ChannelKind.GLOO:
                    raise AssertionError("gloo has no lanes")
        except TransportError as error:
            raise LinkLostError(f"rank {lane.edge.target}: {error}") from error

    def _send_dynamic(self, lane: MessageLane, tensors: Sequence[torch.Tensor]) -> None:
        box = self._ends.boxes[lane.number]
        said = box.begin(self._timeout_s)
        with self._counting:
            for number in [number for number in self._blocks if not self._ends.boxes[number].is_full]:
                self._ends.free(self._blocks.pop(number))
        block = self._ends.allocate(places_of([tensor.nbytes for tensor in tensors])[1])
        self._write(block.memory, tensors)
        self._ends.publish(block)
        shapes = [(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for tensor in tensors]
        text = msgspec.msgpack.encode((block.block_id, block.offset, block.num_bytes, shapes))
        said[: LENGTH_BYTES + len(text)] = len(text).to_bytes(LENGTH_BYTES, "little") + text
        box.fill()
        with self._counting:
            self._blocks[lane.number] = block  # from here on its box says whether it is needed

    def _write(self, memory: memoryview, tensors: Sequence[torch.Tensor]) -> None:
        kinds = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
        for target, tensor in zip(_tensors_in(np.frombuffer(memory, np.uint8), kinds), tensors, strict=True):
            target.copy_(tensor)
        self._count_copied(sum(tensor.nbytes for tensor in tensors))

    def _pack(self, tensors: Sequence[torch.Tensor]) -> memoryview:
        if len(tensors) == 1:
            whole = self.own(tensors[0])  # it is kept until the next one is asked for
            if not whole.is_contiguous():
                self._count_copied(whole.nbytes)
            return as_bytes(whole.contiguous()).numpy().data
        packed = np.empty(places_of([tensor.nbytes for tensor in tensors])[1], np.uint8).data
        self._write(packed, tensors)
        return packed

    def _number_of(self, lane: MessageLane) -> int:
        """Returns which message of its lane is next."""
        with self._counting:
            self._counts[lane.number] = self._counts.get(lane.number, 0) + 1
            return self._counts[lane.number]

    def _count_copied(self, num_bytes: int) -> None:
        with self._counting:
            self.copied_bytes += num_bytes

    # -- receiving -------------------------------------------------------------------------------------------------------------

    def receive(self, lane: MessageLane, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
        """Waits for a message, and returns its tensors, not to be written.

        Args:
            lane: Where it comes.
            shapes: Of the tensors.
            dtype: Their type.

        Raises:
            LinkLostError: None came, or the source is gone.
        """
        kinds = [(tuple(shape), dtype) for shape in shapes]
        if not any(0 not in shape for shape in shapes):
            return [torch.empty(shape, dtype=dtype) for shape in shapes]
        try:
            match lane.edge.kind:
                case ChannelKind.STATIC:
                    slot = self._ends.slots[(*lane.edge.pair, lane.edge.slot)]
                    return self._in_place(slot.take(self._timeout_s), kinds, slot.empty)
                case ChannelKind.DYNAMIC:
                    return self._receive_dynamic(lane)
                case ChannelKind.GRPC:
                    return self._fetch(lane, kinds)
                case ChannelKind.GLOO:
                    raise AssertionError("gloo has no lanes")
        except TransportError as error:
            raise LinkLostError(f"rank {lane.edge.source}: {error}") from error

    def _receive_dynamic(self, lane: MessageLane) -> list[torch.Tensor]:
        box, view = self._ends.boxes[lane.number], self._ends.views[lane.edge.source]
        said = box.take(self._timeout_s)
        end = LENGTH_BYTES + int.from_bytes(said[:LENGTH_BYTES], "little")
        block, offset, num_bytes, shapes = msgspec.msgpack.decode(
            said[LENGTH_BYTES:end], type=tuple[int, int, int, list[tuple[tuple[int, ...], str]]]
        )

        def done() -> None:
            view.restore(offset, num_bytes)
            box.empty()

        kinds = [(shape, getattr(torch, dtype)) for shape, dtype in shapes]
        return self._in_place(view.writable(block, offset, num_bytes), kinds, done)

    def _in_place(self, memory: memoryview, kinds: Sequence[Kind], done: Callable[[], None]) -> list[torch.Tensor]:
        """Tensors that lie in a message; it is done with when the last of them, and of what shares their memory, is gone."""
        array = np.frombuffer(memory, np.uint8)
        start = array.ctypes.data

        def let_go() -> None:
            self._live.discard(start)
            done()

        self._live.add(start)
        weakref.finalize(array, let_go).atexit = False
        return _tensors_in(array, kinds)

    def _fetch(self, lane: MessageLane, kinds: Sequence[Kind]) -> list[torch.Tensor]:
        sizes = _sizes_of(kinds)
        num_bytes = sizes[0] if len(sizes) == 1 else places_of(sizes)[1]
        memory = np.empty(num_bytes, np.uint8)
        info = self._ends.infos[lane.edge.source]
        holder = TensorHolder(f"rank {lane.edge.source}", "", "", grpc_address=info.grpc_address)
        block = Outgoing.block_of(lane.number, self._number_of(lane))
        self._tier(lane.edge.source).fetch(holder, [ByteSpan(block, 0, num_bytes)], [memory.data])
        return _tensors_in(memory, kinds)

    def _tier(self, peer: int) -> Any:
        """The thread's own end of the connection to a server."""
        key = (peer, threading.get_ident())
        if key not in self._tiers:
            from dyorc.transport.grpc_tensors import GrpcTier

            self._tiers[key] = GrpcTier(TransportConfig(peer_timeout_s=self._timeout_s), self._ends.infos[peer].token)
        return self._tiers[key]

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor that may be kept: a copy, if it lies in a message whose place will be written again."""
        if tensor.untyped_storage().data_ptr() not in self._live:
            return tensor
        self._count_copied(tensor.nbytes)
        return tensor.clone()


def _sizes_of(kinds: Sequence[Kind]) -> list[int]:
    return [prod(shape) * dtype.itemsize for shape, dtype in kinds]


def _tensors_in(memory: npt.NDArray[np.uint8], kinds: Sequence[Kind]) -> list[torch.Tensor]:
    """The tensors of a message, where they lie in its memory."""
    flat, sizes = torch.from_numpy(memory), _sizes_of(kinds)
    return [
        flat[place : place + size].view(dtype).view(shape)
        for place, size, (shape, dtype) in zip(places_of(sizes)[0], sizes, kinds, strict=True)
    ]
