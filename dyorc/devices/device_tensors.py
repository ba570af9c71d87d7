"""The results that one process keeps on its devices, by number. Any thread.

To the engine, each column of results is a block, held by `ON_DEVICE`. It stays where its program has computed it, and programs of
the same process on the same device get the tensor itself. It comes to the host when somebody else needs it: once, for all who
do. It leaves the device when the engine releases it, or, the least recently used first, when results take more than their share
of the device's memory or a program finds no memory; then its copy on the host remains.

    states of a block        on the device   on the host
    kept                          x
    copied                        x               x
    moved out                                     x
    released                                             the number is never used again
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from dyorc.core.tensor import ON_DEVICE, BlockId, TensorRef, blocks_of
from dyorc.devices.accelerator import Accelerator
from dyorc.devices.device_rows import DeviceRows, LentTensor, dtype_of_tensor, version_of, view_on_device
from dyorc.transport.inbox import InputsLostError

_SHARE = 4
"""Results may take one part in this many of a device's memory, unless a limit is set."""
_MAX_SLACK = 2
"""A result that keeps more than this many times its bytes alive, as a view of a large tensor does, is copied on the device."""


@dataclass(slots=True, eq=False)
class _Block:
    """A column of results.

    Attributes:
        rows: On the device: one tensor, or a list of one for each call; None: moved out.
        versions: `version_of` each of them when it was kept.
        host: References to the copies on the host, call by call; None: there are none yet.
        copying: Held while it is copied, so that it is copied once.
    """

    accelerator: Accelerator
    rows: Any
    num_bytes: int
    versions: tuple[int | None, ...]
    host: list[TensorRef] | None = None
    copying: threading.Lock = field(default_factory=threading.Lock)


class DeviceTensors:
    """What the programs of one process keep on its devices.

    Args:
        publish: Puts a column into the host's memory, and returns references to its rows. It always finds room.
        free: Frees what `publish` has put into an arena.
        limit_bytes: What results may take on each device; None: a quarter of its memory.
    """

    def __init__(
        self,
        publish: Callable[[Any], list[TensorRef]],
        free: Callable[[Sequence[BlockId]], object],
        limit_bytes: int | None = None,
    ) -> None:
        self._publish = publish
        self._free = free
        self._limit_bytes = limit_bytes
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._numbers = count(1)
        self._taken: dict[str, int] = {}
        self._num_host_copies = 0
        self._num_moved_out = 0
        self._lock = threading.Lock()

    # From programs

    def keep(self, column: DeviceRows, node: str) -> list[TensorRef]:
        """Keeps a column of results. Returns references, call by call. Other columns may be moved out to make room.

        Args:
            column: Of complete tensors: their program and `synchronize` have ended. Nobody may write to them from now on.
        """
        accelerator = column.accelerator
        rows, is_copied = _compact(column.rows)
        if is_copied:
            accelerator.synchronize()
        tensors = rows if isinstance(rows, list) else [rows]
        block = _Block(accelerator, rows, sum(_size(tensor) for tensor in tensors), tuple(map(version_of, tensors)))
        with self._lock:
            number = next(self._numbers)
            self._blocks[number] = block
            self._taken[accelerator.name] = self._taken.get(accelerator.name, 0) + block.num_bytes
        self._keep_to_limit(accelerator)
        dtype = dtype_of_tensor(tensors[0], "a result")
        return [
            TensorRef(
                dtype=dtype, shape=tuple(row.shape), num_bytes=_size(row), node=node, holder=ON_DEVICE, block=number, offset=at
            )
            for at, row in enumerate(rows)
        ]  # fmt: skip

    # To programs

    def lend(self, column: Sequence[TensorRef]) -> DeviceRows | None:
        """Returns a column of a batch where it lies: as one tensor, if its calls follow each other in one block. None if a
        call of it is not on a device.

        Raises:
            InputsLostError: If one was released.
        """
        lent: dict[int, tuple[Any, Sequence[LentTensor]]] = {}
        with self._lock:
            accelerator = self._block(column[0]).accelerator if column[0].holder == ON_DEVICE else None
            for tensor in column:
                if tensor.holder != ON_DEVICE:
                    return None
                if tensor.block in lent:
                    continue
                block = self._block(tensor)
                if block.rows is None:
                    return None
                self._blocks.move_to_end(tensor.block)
                tensors = block.rows if isinstance(block.rows, list) else [block.rows]
                own = (ON_DEVICE, tensor.block)
                lent[tensor.block] = (
                    block.rows,
                    [LentTensor(each, version, own) for each, version in zip(tensors, block.versions, strict=True)],
                )
        assert accelerator is not None
        origins = [each for _, block_lent in lent.values() for each in block_lent]
        rows, first = lent[column[0].block][0], column[0].offset
        if len(lent) == 1 and not isinstance(rows, list) and all(
            tensor.offset == first + at and not tensor.views for at, tensor in enumerate(column)
        ):  # fmt: skip
            return DeviceRows(accelerator, rows[first : first + len(column)], origins)
        return DeviceRows(accelerator, [_view(lent[tensor.block][0][tensor.offset], tensor) for tensor in column], origins)

    # To the host

    def is_on_host(self, number: int) -> bool:
        """Returns whether a block has a copy on the host, so that `on_host` returns at once."""
        block = self._blocks.get(number)
        return block is not None and block.host is not None

    def on_host(self, tensors: Sequence[TensorRef]) -> list[TensorRef]:
        """Returns references to the host's copies of tensors on devices, and the others as they are. Waits for copies.

        Raises:
            InputsLostError: If one was released.
        """
        wanted = {tensor.block for tensor in tensors if tensor.holder == ON_DEVICE}
        copies = {number: self._copied(number) for number in wanted}
        return [
            _seen_alike(copies[tensor.block][tensor.offset], tensor) if tensor.holder == ON_DEVICE else tensor
            for tensor in tensors
        ]

    def _copied(self, number: int) -> list[TensorRef]:
        """Returns the host's copies of a block, row by row."""
        block = self._blocks.get(number)
        if block is None:
            raise _lost(number)
        with block.copying:
            if block.host is not None:
                return block.host
            rows = block.rows
            if isinstance(rows, list):
                column: Any = block.accelerator.copy_to_host(rows).wait()
            else:
                (column,) = block.accelerator.copy_to_host([rows]).wait()
            copies = self._publish(column)
            with self._lock:
                self._num_host_copies += 1
                if number in self._blocks:
                    block.host = copies
                    return copies
        self._free(blocks_of(copies[:1]))  # it was released meanwhile; all rows lie in one block
        raise _lost(number)

    # Memory

    def move_out(self, accelerator: Accelerator, num_bytes: int | None = None) -> int:
        """Moves results to the host, the least recently used first, until this many bytes are free; all of them, if not given.

        Returns:
            The bytes that were moved. The device's memory is free once nobody reads them there.
        """
        moved_bytes = 0
        while num_bytes is None or moved_bytes < num_bytes:
            with self._lock:
                number = next(
                    (
                        number
                        for number, block in self._blocks.items()
                        if block.rows is not None and block.accelerator.name == accelerator.name
                    ),
                    None,
                )
            if number is None:
                break
            try:
                self._copied(number)
            except InputsLostError:
                continue
            with self._lock:
                block = self._blocks.get(number)
                if block is not None and block.rows is not None:
                    moved_bytes += self._drop(block)
                    self._num_moved_out += 1
        return moved_bytes

    def _keep_to_limit(self, accelerator: Accelerator) -> None:
        limit = accelerator.total_bytes // _SHARE if self._limit_bytes is None else self._limit_bytes
        surplus = self._taken[accelerator.name] - limit
        if surplus > 0:
            self.move_out(accelerator, surplus)

    def _drop(self, block: _Block) -> int:
        """Drops what a block has on its device, under the lock. Returns its bytes."""
        if block.rows is None:
            return 0
        block.rows = None
        self._taken[block.accelerator.name] -= block.num_bytes
        return block.num_bytes

    def bytes_on(self, accelerator: Accelerator) -> int:
        """Returns what results take on a device."""
        return self._taken.get(accelerator.name, 0)

    def release(self, number: int) -> None:
        """Forgets a block, with its copies. A number that is not known is ignored: it was released before."""
        with self._lock:
            block = self._blocks.pop(number, None)
            if block is None:
                return
            self._drop(block)
            copies = block.host
        if copies is not None:
            self._free(blocks_of(copies[:1]))

    def release_all(self) -> None:
        """Forgets all blocks."""
        for number in list(self._blocks):
            self.release(number)

    def report(self) -> dict[str, int]:
        """Returns what is on devices now, and how many columns were copied and moved to the host so far."""
        with self._lock:
            num_kept = sum(block.rows is not None for block in self._blocks.values())
        return {
            "num_device_columns": num_kept,
            "device_bytes": sum(self._taken.values()),
            "num_device_to_host_copies": self._num_host_copies,
            "num_device_columns_moved_out": self._num_moved_out,
        }

    def _block(self, tensor: TensorRef) -> _Block:
        block = self._blocks.get(tensor.block)
        if block is None:
            raise _lost(tensor.block)
        return block


def _lost(number: int) -> InputsLostError:
    return InputsLostError([(ON_DEVICE, number)], "its process no longer holds it on a device")


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _compact(rows: Any) -> tuple[Any, bool]:
    """Returns results without gradients, in C order, that keep little else alive; and whether any had to be copied for that."""
    if isinstance(rows, list):
        pairs = [_compact(row) for row in rows]
        return [row for row, _ in pairs], any(is_copied for _, is_copied in pairs)
    tensor = rows.detach().resolve_conj().resolve_neg()
    kept = tensor.contiguous()
    if kept.untyped_storage().nbytes() > _MAX_SLACK * max(1, _size(kept)):
        kept = kept.clone()
    return kept, kept is not tensor


def _view(row: Any, tensor: TensorRef) -> Any:
    for index in tensor.views:
        row = view_on_device(row, index)
    return row


def _seen_alike(copy: TensorRef, tensor: TensorRef) -> TensorRef:
    """Returns a copy as `tensor` sees the original."""
    if not tensor.views:
        return copy
    return msgspec.structs.replace(copy, shape=tensor.shape, views=tensor.views, base=tensor.base)
