"""Answers batches: reads their inputs, runs the program, and sends its results.

With a device, inputs are read where they lie there, if they do, and results may stay there (`SharedTensors`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dyorc.core.request import shifted
from dyorc.devices.device_rows import DeviceRows
from dyorc.devices.shared_tensors import SharedTensors
from dyorc.engine.request_trace import Move
from dyorc.errors import TransportError
from dyorc.replica.batch_results import BatchError, BatchResult
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.program_device import is_movable
from dyorc.replica.resident_table import ResidentRows, ResidentTable
from dyorc.transport.column_codec import ColumnHeader, Frame, Rows, StoredColumn, StoredRows
from dyorc.transport.inbox import Inbox, InputsLostError
from dyorc.transport.messages import BatchColumn, BatchFailure, BatchReply, BatchRequest, InputsLost, ResidentColumn, encode
from dyorc.transport.outbox import NoRoomError, Outbox


@dataclass(frozen=True, slots=True)
class RoomWait:
    """How results wait for room in a full arena.

    Attributes:
        once: Waits briefly.
        limit_s: The longest wait for the results of a batch.
        memory: The name of the arena's shared memory (`TensorHolder`).
    """

    once: Callable[[], None]
    limit_s: float
    memory: str = ""


class BatchRunner:
    """Runs the batches of one replica. One thread.

    Args:
        residents: What its process holds; None if it shares nothing.
        shared: What stays on the program's device; None: everything comes to the host.
    """

    def __init__(
        self,
        replica_id: str,
        executor: ProgramExecutor,
        inbox: Inbox,
        outbox: Outbox,
        room_wait: RoomWait,
        residents: ResidentTable | None = None,
        shared: SharedTensors | None = None,
    ) -> None:
        self._replica_id = replica_id
        self._executor = executor
        executor.reuse_memory()  # its outputs are written before the next batch
        self._inbox = inbox
        self._outbox = outbox
        self._room_wait = room_wait
        self._residents = residents
        self._shared = shared
        self._names = [spec.name for spec in executor.program.signature.outputs.tensors]
        self._are_movable = list(map(is_movable, executor.program.signature.inputs))
        if shared is not None and executor.device is not None:
            executor.device.chooses = shared.wants

    def answer(self, request: BatchRequest, frames: Sequence[Frame], send: Callable[[list[Frame]], None]) -> None:
        """Runs a batch and sends the message that answers it."""
        try:
            send(self._answer(request, frames))
        finally:
            self._outbox.drop_reserved()
            self._inbox.done()  # not earlier: outputs may be views of inputs
            self._inbox.moves.take()  # those of a failed batch

    def _answer(self, request: BatchRequest, frames: Sequence[Frame]) -> list[Frame]:
        try:
            started_s = time.perf_counter()
            columns = self._read(request, frames)
            fetch_s = time.perf_counter() - started_s
            moves = self._inbox.moves.take()
            seen = shifted(request.seen, time.monotonic_ns())
            result = self._executor.run(columns, request.statics, self._outbox.reserve, request.span, request.chain, seen)
            self._inbox.check()
            if self._shared is not None:
                result = self._without_writes(request, columns, result)
            if isinstance(result, BatchResult):
                return self._hand_out(request, result, fetch_s, moves)
        except InputsLostError as error:
            return [encode(InputsLost(self._replica_id, request.batch_id, error.blocks, str(error)))]
        except TransportError as error:
            result = BatchError.of(error)
        text = result.error_type, result.message, result.traceback
        return [encode(BatchFailure(self._replica_id, request.batch_id, *text, input_at=result.input_at))]

    def _read(self, request: BatchRequest, frames: Sequence[Frame]) -> list[Rows]:
        """Returns the inputs of a batch.

        Raises:
            InputsLostError: If one is gone.
        """
        on_device = self._lend(request)
        tensors = [
            column for at, column in enumerate(request.columns) if not isinstance(column, ResidentColumn) and at not in on_device
        ]
        rows = self._inbox.read(tensors, frames, request.holders)
        if len(tensors) == len(request.columns):
            return rows
        left = iter(rows)
        return [
            self._look_up(column) if isinstance(column, ResidentColumn)
            else cast("Rows", on_device[at]) if at in on_device
            else next(left)
            for at, column in enumerate(request.columns)
        ]  # fmt: skip

    def _lend(self, request: BatchRequest) -> dict[int, DeviceRows]:
        """Returns the inputs that are read on the device, by their positions."""
        if self._shared is None or request.chain:
            return {}
        lent: dict[int, DeviceRows] = {}
        for at, column in enumerate(request.columns):
            if isinstance(column, StoredColumn) and self._are_movable[at]:
                rows = self._shared.lend(column, request.holders)
                if rows is not None:
                    lent[at] = rows
                    for part in column.parts:
                        assert isinstance(part, StoredRows)
                        self._inbox.watch(request.holders[part.holder], part)
        return lent

    def _without_writes(
        self, request: BatchRequest, columns: Sequence[Rows], result: BatchResult | BatchError
    ) -> BatchResult | BatchError:
        """Returns what came of a batch: an error if it wrote to an input on the device. Then who needs that gets a new one."""
        device = self._executor.device
        assert device is not None
        changed = [block for rows in columns if isinstance(rows, DeviceRows) for block in rows.changed()]
        if not changed:
            return result
        holders = {holder.holder_id: holder for holder in request.holders}
        for holder_id, block in changed:
            self._inbox.lose(holders[holder_id], block)
        return BatchError("InvalidInputError", device.written_text(), "")

    def _look_up(self, column: ResidentColumn) -> list[Any]:
        residents = self._residents
        if residents is None or residents.process != column.process:
            blocks = [(column.process, number) for number in column.numbers]
            raise InputsLostError(blocks, f"residents of process {column.process!r} cannot be read in another")
        return [residents.get(number) for number in column.numbers]

    def _hand_out(self, request: BatchRequest, result: BatchResult, fetch_s: float, moves: tuple[Move, ...]) -> list[Frame]:
        """Returns the reply of a batch that ran, once there is room for its outputs."""
        ran_s = time.perf_counter()
        outputs, shared = self._share(result.outputs)
        is_handed_out = False
        try:
            limit_s = self._room_wait.limit_s
            give_up_s = time.monotonic() + limit_s * request.room_share
            rows = [rows for at, rows in enumerate(outputs) if at not in shared and not isinstance(rows, ResidentRows)]
            while True:
                try:
                    stored, parts = self._outbox.write(rows)
                    self._check(stored)
                    columns = stored if len(stored) == len(outputs) else self._keep(outputs, shared, stored)
                    gather_s, publish_s = fetch_s + result.stack_s, result.split_s + time.perf_counter() - ran_s
                    infer_s = result.execute_s - result.stack_s - result.split_s
                    reply = BatchReply(
                        self._replica_id, request.batch_id, columns, result.execute_s, gather_s, infer_s, publish_s, moves
                    )
                    is_handed_out = True
                    return [encode(reply), *parts]
                except NoRoomError as error:
                    self._outbox.check_beside(error.num_bytes, _stored_bytes(request, self._room_wait.memory))
                    if time.monotonic() >= give_up_s:
                        message = error.within("the arena of a replica", limit_s, request.room_share)
                        failure = BatchFailure(self._replica_id, request.batch_id, "NoRoomError", message, "", is_capacity=True)
                        return [encode(failure)]
                    self._room_wait.once()
        finally:
            if not is_handed_out and self._shared is not None:
                self._shared.take_back(shared.values())

    def _share(self, outputs: Sequence[Rows | ResidentRows]) -> tuple[list[Rows | ResidentRows], dict[int, StoredColumn]]:
        """Keeps outputs on the device. Returns all outputs, those without room there as copies on the host; and the headers of
        what was kept, by their positions."""
        left, shared = list(outputs), dict[int, StoredColumn]()
        for at, rows in enumerate(outputs):
            if isinstance(rows, DeviceRows):
                assert self._shared is not None
                header = self._shared.keep(self._names[at], rows)
                if header is None:
                    left[at] = rows.on_host()
                else:
                    shared[at] = header
        return left, shared

    def _keep(
        self, outputs: Sequence[Rows | ResidentRows], shared: Mapping[int, StoredColumn], stored: Sequence[ColumnHeader]
    ) -> tuple[BatchColumn, ...]:
        """Adds the residents among a batch's outputs to the process's table. Returns the headers of all outputs.

        Args:
            shared: Headers of outputs on the device, by their positions.
            stored: Headers of the others.
        """
        residents, left = self._residents, iter(stored)
        columns: list[BatchColumn] = []
        for at, rows in enumerate(outputs):
            if at in shared:
                columns.append(shared[at])
            elif isinstance(rows, ResidentRows):
                assert residents is not None  # a program with residents always has some
                numbers = [residents.add(each, size) for each, size in zip(rows.objects, rows.sizes, strict=True)]
                columns.append(ResidentColumn(residents.process, tuple(numbers), tuple(rows.sizes)))
            else:
                columns.append(next(left))
        return tuple(columns)

    def _check(self, columns: Sequence[ColumnHeader]) -> None:
        """Checks the inputs again after the outputs, which may be views of them, were copied.

        Raises:
            InputsLostError: If an input was freed. Then the outputs are lost, too.
        """
        try:
            self._inbox.check()
        except InputsLostError:
            self._outbox.take_back(columns)
            raise


def _stored_bytes(request: BatchRequest, memory: str) -> int:
    """Returns how many bytes of a batch's inputs are in a shared memory."""
    parts = [part for column in request.columns if isinstance(column, StoredColumn) for part in column.parts]
    stored = [part for part in parts if isinstance(part, StoredRows)]
    return sum(part.num_bytes * part.num_rows for part in stored if request.holders[part.holder].memory == memory)
