"""How a program of this process reads its inputs, and keeps its results.

Inputs are read in place. Small ones are arrays, which the executor copies. Large ones are in an arena. A program may write to its
inputs, and others may need them unchanged. So each program has its own views, whose pages the kernel copies when they are written
(`ArenaView.writable`), and drops them when the batch has ended.

Results are copied once: a program may return a buffer that it overwrites in the next batch, or its input. What it wrote into
memory that it had requested (`dyorc.empty`) is not copied: by contract, it writes nothing more there.

Results on a device stay there (`DeviceTensors`), and programs on the same device are lent them. They are not copied either: a
program that declares a device writes to nothing that it has returned, and to no input.

Residents (`dyorc.Resident`) are neither read nor copied: the program gets the objects, and what it returns is kept as it is.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from dyorc.answering.tensor_exchange import OWN, Tensors, has_stored, inline_array, stored_refs
from dyorc.authoring.array_memory import Reserve
from dyorc.core.arrays import Array, dtype_of
from dyorc.core.tensor import ON_DEVICE, TensorRef, blocks_of, is_resident
from dyorc.devices.device_rows import DeviceRows
from dyorc.devices.device_tensors import DeviceTensors
from dyorc.engine.actions import DispatchBatch
from dyorc.replica.resident_table import ResidentRows, ResidentTable
from dyorc.transport.column_codec import Rows, StoredColumn, each_row
from dyorc.transport.inbox import Inbox, InputsLostError
from dyorc.transport.outbox import NoRoomError, Outbox, TooLargeError
from dyorc.transport.tier_routes import Routes


class ProgramInputs:
    """Reads the inputs of one program's batches. Used on the event loop.

    Args:
        residents: What the programs of its group hold; None if it shares nothing.
        is_writing: Whether the program may write to what it reads in place. If so, its batches run one after the other.
        on_device: For each input, whether the program takes it where it lies on a device; empty: none.
    """

    def __init__(
        self,
        tensors: Tensors,
        residents: ResidentTable | None = None,
        *,
        is_writing: bool = True,
        on_device: Sequence[bool] = (),
    ) -> None:
        self._on_device = on_device
        self._tensors = tensors
        self._residents = residents
        self._is_writing = is_writing
        self._routes: Routes | None = None

    def on_host(self, action: DispatchBatch, stored: Sequence[TensorRef]) -> Sequence[TensorRef]:
        """Returns the stored inputs of a batch that have to be on the host before it runs."""
        if action.chain or not any(self._on_device):
            return stored
        return [
            tensor
            for row in action.operands
            for tensor, is_taken in zip(row, self._on_device, strict=True)
            if tensor.block and not is_resident(tensor) and not (is_taken and tensor.holder == ON_DEVICE)
        ]

    def read(
        self, operands: Sequence[tuple[TensorRef, ...]], is_any_stored: bool, *, is_chain: bool = False
    ) -> tuple[list[Rows], Inbox | None]:
        """Returns a batch's inputs, column by column, and the inbox that reads those in an arena, if there are any.

        Args:
            is_chain: Whether they are the inputs of a chain of residents, in place of the program's own.

        Raises:
            InputsLostError: If a holder is gone or no longer has a tensor.
        """
        inbox = self._inbox() if is_any_stored else None
        if is_chain or not any(self._on_device):
            return [self._column(column, inbox) for column in zip(*operands, strict=True)], inbox
        columns = zip(zip(*operands, strict=True), self._on_device, strict=True)
        return [
            self._device_column(column, inbox) if is_taken else self._column(column, inbox) for column, is_taken in columns
        ], inbox

    def beside(self, operands: Sequence[tuple[TensorRef, ...]], fetched: Sequence[Array]) -> list[Rows]:
        """Returns the inputs of a batch whose tensors were fetched from elsewhere, call by call.

        Raises:
            InputsLostError: If a resident is gone.
        """
        arrays = iter(fetched)
        rows = [[None if is_resident(tensor) else next(arrays) for tensor in row] for row in operands]
        return [
            self._column(column, None) if is_resident(column[0]) else cast("Rows", list(values))
            for column, values in zip(zip(*operands, strict=True), zip(*rows, strict=True), strict=True)
        ]

    def _inbox(self) -> Inbox:
        if self._routes is None:
            self._routes = self._tensors.lend_routes()
        return Inbox(self._routes, is_writing=self._is_writing)

    def _column(self, column: tuple[TensorRef, ...], inbox: Inbox | None) -> Rows:
        if is_resident(column[0]):
            if self._residents is None:
                raise InputsLostError(blocks_of(column), "a program without residents was given one")
            return self._residents.read(column)
        if inbox is not None:
            column = tuple(self._tensors.on_host(column))
        if inbox is None or not has_stored(column):
            return [inline_array(tensor) for tensor in column]
        headers, frames, holders = self._tensors.pack([(tensor,) for tensor in column])
        return inbox.read(headers, frames, holders)[0]

    def _device_column(self, column: tuple[TensorRef, ...], inbox: Inbox | None) -> Rows:
        """Returns an input whose calls may lie on a device; the others are on the host."""
        devices = self._tensors.devices
        if devices is None or all(tensor.holder != ON_DEVICE for tensor in column):
            return self._column(column, inbox)
        if (lent := devices.lend(column)) is not None:
            return lent
        lent_rows = [devices.lend((tensor,)) for tensor in column]
        accelerator = next((row.accelerator for row in lent_rows if row is not None), None)
        if accelerator is None:  # all were moved out
            return self._column(column, inbox)
        rows = [
            self._column((tensor,), inbox)[0] if row is None else row[0] for tensor, row in zip(column, lent_rows, strict=True)
        ]
        return DeviceRows(accelerator, rows, [each for row in lent_rows if row is not None for each in row.lent])

    def close(self) -> None:
        """Drops the views."""
        if self._routes is not None:
            self._tensors.take_back(self._routes)
            self._routes = None


_SHARED_BYTES = 4096
"""Up to this size, the tensors of a batch share one copy, though one that is kept then keeps all of them."""


class ProgramResults:
    """Makes references to the results of one program. Any thread, one at a time.

    Args:
        node: This machine.
        outbox: Where large tensors go. The others stay arrays, which Python frees.
        residents: What the programs of its group hold; None if it shares nothing.
        devices: What this process keeps on its devices; None if its results are on the host.
    """

    def __init__(
        self, node: str, outbox: Outbox, residents: ResidentTable | None = None, devices: DeviceTensors | None = None
    ) -> None:
        self.devices = devices
        self._node = node
        self._residents = residents
        self._outbox = outbox

    @property
    def reserve(self) -> Reserve:
        """Where the program may write large results (`dyorc.empty`)."""
        return self._outbox.reserve

    def keep(self, outputs: Sequence[Rows | ResidentRows]) -> list[tuple[TensorRef, ...]]:
        """Returns references to the outputs of a batch, call by call.

        Raises:
            NoRoomError: If the arena has no room now. Nothing was kept.
            TransportError: If it never will have room.
        """
        on_device = self._keep_on_device(outputs)
        try:
            stored = self._store(outputs)
        except BaseException:
            self._release(on_device)
            raise
        columns = [
            on_device[at] if at in on_device
            else self._add(rows) if isinstance(rows, ResidentRows)
            else stored_refs(stored[at], OWN, self._node) if at in stored
            else self._inline(rows)
            for at, rows in enumerate(outputs)
        ]  # fmt: skip
        return list(zip(*columns, strict=True))

    def publish(self, rows: Rows) -> list[TensorRef]:
        """Returns references to a column that was copied from a device, call by call. Without room in the arena, it is in
        ordinary memory."""
        try:
            return [tensor for (tensor,) in self.keep([rows])]
        except (NoRoomError, TooLargeError):
            return self._refs([np.array(row, order="C") for row in each_row(rows)])

    def _keep_on_device(self, outputs: Sequence[Rows | ResidentRows]) -> dict[int, list[TensorRef]]:
        """Keeps the outputs that lie on a device, all or none."""
        kept: dict[int, list[TensorRef]] = {}
        try:
            for at, rows in enumerate(outputs):
                if isinstance(rows, DeviceRows):
                    assert self.devices is not None
                    kept[at] = self.devices.keep(rows, self._node)
        except BaseException:
            self._release(kept)
            raise
        return kept

    def _release(self, kept: Mapping[int, Sequence[TensorRef]]) -> None:
        for tensors in kept.values():
            assert self.devices is not None
            self.devices.release(tensors[0].block)

    def check_beside(self, num_bytes: int, inputs: Sequence[TensorRef]) -> None:
        """Checks that shared memory can hold results of this size together with inputs that are there.

        Raises:
            TooLargeError: If it cannot.
        """
        self._outbox.check_beside(num_bytes, sum(tensor.num_bytes for tensor in inputs if tensor.node == self._node))

    def done(self) -> None:
        """Ends the batch: frees memory that was reserved for results and not used."""
        self._outbox.drop_reserved()

    def _add(self, rows: ResidentRows) -> list[TensorRef]:
        assert self._residents is not None
        return self._residents.keep(rows, self._node)

    def _store(self, outputs: Sequence[Rows | ResidentRows]) -> dict[int, StoredColumn]:
        """Puts large outputs into the arena, all or none; returns their headers."""
        large = [
            (at, rows)
            for at, rows in enumerate(outputs)
            if not isinstance(rows, ResidentRows | DeviceRows) and not self._outbox.is_small(rows)
        ]
        headers, _ = self._outbox.write([rows for _, rows in large])
        return {at: header for (at, _), header in zip(large, headers, strict=True) if isinstance(header, StoredColumn)}

    def _inline(self, rows: Rows) -> list[TensorRef]:
        if isinstance(rows, np.ndarray) and rows.nbytes <= _SHARED_BYTES * len(rows):
            return self._refs(each_row(np.array(rows, order="C")))
        return self._refs([np.array(row, order="C") for row in rows])

    def _refs(self, rows: Sequence[Array]) -> list[TensorRef]:
        dtype, node = dtype_of(rows[0]), self._node
        return [TensorRef(dtype=dtype, shape=row.shape, num_bytes=row.nbytes, node=node, data=row) for row in rows]
