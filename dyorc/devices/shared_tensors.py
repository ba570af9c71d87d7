"""The results of a replica that stay on its device, for programs on the same device in this process and in others.

They lie in *slabs*, memory that other processes open once and read from then on; a column is copied there on the device when its
batch has ended. Each column also has a block in the arena, with room for its bytes, by which the engine, the orchestrator and all
readers know it, as any other. The last byte of the block says whether it has them (`DevicePlace.flag`).

    states of a block      slab    arena, bytes    flag
    kept                     x                       0
    copied, or read          x          x            1
    released                                               both may be used again

While the engine has a lease on a block, its part of the slab is not used again, so readers need no other agreement. Slabs are
given up only when no block is left in them: readers have them open, and may read until their batches have ended.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog

from dyorc.core.tensor import DType, Layout
from dyorc.devices.accelerator import Accelerator, DeviceMemory, SharedMemory
from dyorc.devices.device_rows import DeviceRows, LentTensor, dtype_of_tensor, torch_dtype, version_of
from dyorc.errors import TransportError
from dyorc.transport.arena import Arena, ArenaBlock
from dyorc.transport.arena_file import PAGE_BYTES, round_up
from dyorc.transport.arena_space import FreeSpace
from dyorc.transport.column_codec import DevicePlace, StoredColumn, StoredRows, check_stored
from dyorc.transport.outbox import offsets_of
from dyorc.transport.tiers import TensorHolder

_log = structlog.get_logger("dyorc.devices")

_SHARE = 8
"""Slabs may take one part in this many of a device's memory, unless a limit is set."""
_SLAB_BYTES = 64 * 2**20
_IDLE_S = 30.0
"""A slab of another process that was not read for so long is closed: that process may have given it up."""


@dataclass(slots=True, eq=False)
class _Slab:
    memory: SharedMemory
    space: FreeSpace
    num_blocks: int = 0


_own_slabs: dict[tuple[bytes, int], _Slab] = {}
"""This process's slabs, of all its programs, by handle and offset: a process cannot open its own memory."""


@dataclass(slots=True, eq=False)
class _Kept:
    """A column on the device.

    Attributes:
        start, num_taken: Its part of the slab.
        rows: Where in the part each tensor begins, in bytes, and the tensor.
    """

    name: str
    block: ArenaBlock
    slab: _Slab
    start: int
    num_taken: int
    rows: Sequence[tuple[int, Any]]
    is_copied: bool = False


@dataclass(slots=True, eq=False)
class _Opened:
    memory: DeviceMemory
    holder_id: str
    used_s: float


class ReadingHabit:
    """Whether results of one kind are read on the device: then they stay there. Otherwise they come to the host at once, which
    spares who reads them there a request. Now and then one stays all the same, to see whether that has changed."""

    _MAX = 4
    _TRY_EVERY = 32

    def __init__(self) -> None:
        self._score = self._MAX
        self._num_copied = 0

    def stays(self) -> bool:
        """Returns whether the next one is to stay."""
        if self._score > 0:
            return True
        self._num_copied += 1
        return self._num_copied % self._TRY_EVERY == 0

    def learn(self, *, was_copied: bool) -> None:
        """Learns from one that stayed and was released."""
        step = -1 if was_copied else 1
        self._score = max(0, min(self._MAX, self._score + step))


class SharedTensors:
    """What one replica keeps on its device for others, and reads there. A `HostCopier`.

    `keep`, `lend` and what releases run on the replica's thread; `copy` and `lose` on any.

    Args:
        min_bytes: Tensors up to this size travel in messages.
        limit_bytes: What slabs may take; None: an eighth of the device's memory.
        clock: For tests.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        arena: Arena,
        min_bytes: int,
        limit_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accelerator = accelerator
        self._arena = arena
        self._min_bytes = min_bytes
        self._limit_bytes = accelerator.total_bytes // _SHARE if limit_bytes is None else limit_bytes
        self._clock = clock
        self._uuid = accelerator.uuid
        self._slabs: list[_Slab] = []
        self._kept: dict[int, _Kept] = {}
        self._habits: defaultdict[str, ReadingHabit] = defaultdict(ReadingHabit)
        self._opened: dict[bytes, _Opened] = {}
        self._gone: set[str] = set()
        self._is_refused = False
        self._is_parked = False
        self._lock = threading.RLock()

    # Results

    def wants(self, name: str, tensor: Any, num_rows: int) -> bool:
        """Returns whether a result is to stay: it is large, and such results are read on the device.

        Args:
            name: Of the program's output.
        """
        is_large = tensor.numel() * tensor.element_size() > self._min_bytes * num_rows
        return is_large and not self._is_refused and self._habits[name].stays()

    def keep(self, name: str, column: DeviceRows) -> StoredColumn | None:
        """Keeps a column of results. Returns its header; None if there is no room, so that it has to go to the host.

        Args:
            column: Of complete tensors.
        """
        rows = column.rows
        tensors = [rows] if column.is_stacked else list(rows)
        lengths = [int(tensor.numel() * tensor.element_size()) for tensor in tensors]
        offsets, num_bytes = offsets_of(lengths)
        with self._lock:
            self._is_parked = False
            taken = self._take(round_up(max(num_bytes, 1), PAGE_BYTES))
            if taken is None:
                return None
            slab, start, num_taken = taken
            block = self._arena.allocate(num_bytes + 1)
            if block is None:
                self._give_back(slab, start, num_taken)
                return None
            places = [
                slab.memory.tensor[start + at : start + at + length].view(tensor.dtype).reshape(tensor.shape)
                for tensor, at, length in zip(tensors, offsets, lengths, strict=True)
            ]
            for place, tensor in zip(places, tensors, strict=True):
                place.copy_(tensor.detach())
            self._accelerator.synchronize()
            block.memory[num_bytes] = 0
            self._arena.publish(block)
            kept = _Kept(name, block, slab, start, num_taken, list(zip(offsets, places, strict=True)))
            self._kept[block.block_id] = kept
        device = DevicePlace(self._uuid, slab.memory.handle, slab.memory.offset, start - block.offset, block.offset + num_bytes)
        dtype = dtype_of_tensor(tensors[0], "a result")
        if column.is_stacked:
            shape, num_rows = tuple(rows.shape[1:]), len(rows)
            part = StoredRows(
                0, block.block_id, block.offset, lengths[0] // num_rows, shape, num_rows, int(rows[0].numel()), device=device
            )
            return StoredColumn(dtype, (part,))
        return StoredColumn(
            dtype,
            tuple(
                StoredRows(
                    0, block.block_id, block.offset + at, length, tuple(tensor.shape), 1, int(tensor.numel()), device=device
                )
                for tensor, at, length in zip(tensors, offsets, lengths, strict=True)
            ),
        )

    def _take(self, num_bytes: int) -> tuple[_Slab, int, int] | None:
        for slab in self._slabs:
            start = slab.space.take(num_bytes)
            if start is not None:
                slab.num_blocks += 1
                return slab, start, num_bytes
        size = max(_SLAB_BYTES, num_bytes)
        left = self._limit_bytes - sum(slab.memory.num_bytes for slab in self._slabs)
        size = min(size, left - left % PAGE_BYTES)
        if size < num_bytes:
            return None
        try:
            memory = self._accelerator.allocate_shared(size)
        except Exception as error:  # the device does not allow it, or has no memory
            self._is_refused = isinstance(error, TransportError)
            _log.info("device_memory_not_shared", device=self._accelerator.name, error=f"{type(error).__name__}: {error}")
            return None
        slab = _Slab(memory, FreeSpace(0, size))
        self._slabs.append(slab)
        _own_slabs[memory.handle, memory.offset] = slab
        start = slab.space.take(num_bytes)
        assert start is not None
        slab.num_blocks += 1
        return slab, start, num_bytes

    def _give_back(self, slab: _Slab, start: int, num_taken: int) -> None:
        slab.space.give_back(start, num_taken)
        slab.num_blocks -= 1
        if not slab.num_blocks and self._is_parked:
            self._close(slab)

    def _close(self, slab: _Slab) -> None:
        self._slabs.remove(slab)
        del _own_slabs[slab.memory.handle, slab.memory.offset]
        slab.memory.close()

    # Inputs

    def lend(self, column: StoredColumn, holders: Sequence[TensorHolder]) -> DeviceRows | None:
        """Returns a column of a batch where it lies on this replica's device; None if any of it does not lie there, or cannot be
        read there.

        Raises:
            TransportError: If its header contradicts itself.
        """
        self.close_idle()
        tensors: list[Any] = []
        lent: list[LentTensor] = []
        for part in column.parts:
            if not isinstance(part, StoredRows) or part.device is None or part.device.device != self._uuid:
                return None
            check_stored(column.dtype, part)
            if not 0 <= part.holder < len(holders):
                raise TransportError(f"a column points beyond {len(holders)} holders")
            tensor = self._read(column.dtype, part, part.device, holders[part.holder])
            if tensor is None:
                return None
            tensors.append(tensor)
            lent.append(LentTensor(tensor, version_of(tensor), (holders[part.holder].holder_id, part.block)))
        if len(tensors) == 1:
            return DeviceRows(self._accelerator, tensors[0], lent)
        return DeviceRows(self._accelerator, [row for tensor in tensors for row in tensor], lent)

    def _read(self, dtype: DType, part: StoredRows, device: DevicePlace, holder: TensorHolder) -> Any:
        """Returns calls as one tensor; None if their memory cannot be opened, or torch cannot show them."""
        own = _own_slabs.get((device.handle, device.base))
        if own is not None:
            memory, base = own.memory, 0
        else:
            opened = self._open(device.handle, holder.holder_id)
            if opened is None:
                return None
            memory, base = opened, device.base
        start, num_bytes = base + part.offset + device.shift, part.num_rows * part.num_bytes
        if start < base or start + num_bytes > memory.num_bytes:
            raise TransportError(f"{num_bytes} bytes from {start} are not within {memory.num_bytes} bytes of a device")
        # `data` has a version of its own: others may write beside it meanwhile
        flat = memory.tensor[start : start + num_bytes].view(torch_dtype(dtype)).data
        if part.strides is None:
            return flat.reshape(part.num_rows, *part.shape)
        if min(part.strides, default=0) < 0:
            return None
        first, end = Layout(part.start, part.shape, part.strides).bounds()
        if not 0 <= first <= end <= part.num_items or len(part.strides) != len(part.shape):
            raise TransportError(f"a view reaches from element {first} to {end} of a tensor of {part.num_items}")
        return flat.as_strided((1, *part.shape), (0, *part.strides), flat.storage_offset() + part.start)

    def _open(self, handle: bytes, holder_id: str) -> DeviceMemory | None:
        opened = self._opened.get(handle)
        if opened is None:
            try:
                memory = self._accelerator.open_memory(handle)
            except TransportError as error:
                _log.info("device_memory_not_opened", device=self._accelerator.name, holder=holder_id, error=str(error))
                return None
            opened = self._opened[handle] = _Opened(memory, holder_id, 0.0)
        opened.used_s = self._clock()
        return opened.memory

    def forget(self, holder_id: str) -> None:
        """Closes the memory of a process that is gone, before the next batch."""
        self._gone.add(holder_id)

    def close_idle(self) -> None:
        """Closes memory of others that nobody reads. No batch may be running."""
        now_s = self._clock()
        for handle, opened in list(self._opened.items()):
            if opened.holder_id in self._gone or now_s - opened.used_s > _IDLE_S:
                del self._opened[handle]
                opened.memory.close()
        self._gone.clear()

    # To the host

    def copy(self, block: int) -> bool:
        """Fills a block of the arena, unless it was or lies on no device. Returns False if it was released."""
        with self._lock:
            kept = self._kept.get(block)
            if kept is None:
                return False
            if not kept.is_copied:
                arrays = self._accelerator.copy_to_host([tensor for _, tensor in kept.rows]).wait()
                memory = np.frombuffer(kept.block.memory, np.uint8)
                for (at, _), array in zip(kept.rows, arrays, strict=True):
                    memory[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
                kept.is_copied = True
                kept.block.memory[kept.block.num_bytes - 1] = 1  # last: a reader that sees it must see the bytes
            return True

    def lose(self, block: int) -> None:
        """Frees a block whose elements were overwritten. The engine releases its number later, which does nothing."""
        if self.release(block):
            self._arena.free(block)

    # Releases

    def take_back(self, headers: Iterable[StoredColumn]) -> None:
        """Frees columns that no other process knows of yet."""
        for header in headers:
            (part, *_) = header.parts
            assert isinstance(part, StoredRows)
            self.lose(part.block)

    def release(self, block: int) -> bool:
        """Gives up a block's part of the device. Returns whether it had any."""
        with self._lock:
            kept = self._kept.pop(block, None)
            if kept is None:
                return False
            self._habits[kept.name].learn(was_copied=kept.is_copied)
            self._give_back(kept.slab, kept.start, kept.num_taken)
            return True

    def release_all(self) -> None:
        """Gives up all blocks, because nothing will read them."""
        for block in list(self._kept):
            self.release(block)

    def park(self) -> None:
        """Gives up the device's memory: of what lies there still, once it is released."""
        with self._lock:
            self._is_parked = True
            for slab in [slab for slab in self._slabs if not slab.num_blocks]:
                self._close(slab)
        for opened in self._opened.values():
            opened.memory.close()
        self._opened.clear()

    def close(self) -> None:
        """Gives up everything, because the process ends."""
        self.release_all()
        self.park()

    def report(self) -> dict[str, int]:
        """Returns what is on the device for others, and which memory of others is open."""
        return {"num_device_columns": len(self._kept), "num_slabs": len(self._slabs), "num_opened": len(self._opened)}
