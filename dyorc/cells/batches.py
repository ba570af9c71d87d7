"""One batch in this process: its inputs as arrays, its outcome and times, and the notes for after a crash. Any thread."""

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from dyorc.authoring.resident import ChainLink
from dyorc.authoring.signature import StaticValue
from dyorc.cells.program_tensors import ProgramResults
from dyorc.core.request import RequestInfo
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.core.trace_context import TraceContext
from dyorc.devices.device_rows import DeviceRows
from dyorc.engine.events import BatchDone, BatchFailed
from dyorc.engine.request_trace import Move
from dyorc.replica.batch_results import BatchError, BatchResult
from dyorc.replica.executor import ProgramExecutor
from dyorc.transport.column_codec import Rows
from dyorc.transport.inbox import Inbox, InputsLostError
from dyorc.transport.outbox import NoRoomError, TooLargeError


class CrashNotes(Protocol):
    """Notes what runs, where other processes can read it after a crash. Any thread, one batch of a program at a time."""

    def begin(self, program: str, inputs: Sequence[bytes], *, is_suspect: bool) -> None:
        """Notes that a batch runs.

        Args:
            inputs: The digests of its inputs.
            is_suspect: Whether it is a single call that runs alone because it may crash this process.
        """
        ...

    def end(self, program: str) -> None:
        """Notes that the program's batch has ended."""
        ...


_INTERVALS_OF_WAIT = 2.0
"""A thread is scheduled a little later than it asked for."""
_MAX_UNEXPLAINED = 1.25
"""Up to this ratio of its time to its computing time, it is not examined what a batch waited for."""


@dataclass(frozen=True, slots=True)
class LocalBatch:
    """A batch whose inputs can be read.

    Attributes:
        columns: For each input, the arrays of the calls, in place; of residents, the objects. Empty once the batch has ended.
        stored: Inputs in an arena, which can be lost while they are read.
        gather_s: Time that it took to find the inputs.
        moves: How stored inputs came here. The others did not move.
        room_share, is_suspect: See `DispatchBatch`.
        inputs: The digests of its calls' requests, if they are to be noted.
        span: The batch's span, if it is traced.
        inbox: Reads inputs in place; None if none is.
        chain, max_parts, seen: See `DispatchBatch`.
        lost: Blocks that were freed while they were read in place, known once the batch has ended.
    """

    replica_id: str
    batch_id: int
    num_calls: int
    columns: list[Rows]
    statics: tuple[StaticValue, ...]
    stored: Sequence[TensorRef]
    gather_s: float
    moves: Sequence[Move] = ()
    room_share: float = 1.0
    inputs: Sequence[bytes] = ()
    is_suspect: bool = False
    span: TraceContext | None = None
    inbox: Inbox | None = None
    chain: Sequence[ChainLink] = ()
    max_parts: int = 0
    seen: Sequence[RequestInfo] = ()
    lost: list[BlockId] = field(default_factory=list[BlockId])

    def done(self) -> None:
        """Ends the reading of inputs, and undoes what the program wrote to them. Call it once results, which may be views of
        inputs, are copied.

        Whoever has to report the batch keeps it for longer: it must not be the last to hold a resident, which has to end on its
        program's thread.
        """
        self.columns.clear()
        if self.inbox is not None:
            try:
                self.inbox.check()
            except InputsLostError as error:
                self.lost.extend(error.blocks)
            self.inbox.done()


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """A batch that ran.

    Attributes:
        event: The event for the engine; None if there was no room for the results.
        result: The results, in that case.
        wall_s: How long it took, without the time in which the system ran other processes on its core, or other threads of this
            process had the interpreter.
        cpu_s: How long its thread computed.
        overlap_s: For how much of that time other threads of this process computed, too.
    """

    event: BatchDone | BatchFailed | None
    result: BatchResult | None
    wall_s: float
    cpu_s: float
    overlap_s: float


def run_batch(batch: LocalBatch, executor: ProgramExecutor, results: ProgramResults) -> BatchOutcome:
    """Runs a batch and copies its results."""
    num_waits, process_s, wall_s, cpu_s = _num_waits(), time.process_time(), time.perf_counter(), time.thread_time()
    result = _run_with_room(batch, executor, results)
    event: BatchDone | BatchFailed | None
    if isinstance(result, BatchError):
        event = result.event(batch.replica_id, batch.batch_id)
        result = None
    else:
        kept = _keep(batch, result, results)
        event = None if isinstance(kept, NoRoomError) else kept
    if event is not None:
        result = None
        results.done()
        batch.done()
    wall_s, cpu_s, process_s = time.perf_counter() - wall_s, time.thread_time() - cpu_s, time.process_time() - process_s
    overlap_s = max(0.0, process_s - wall_s)
    if num_waits is not None and wall_s > _MAX_UNEXPLAINED * cpu_s:
        wall_s -= min(wall_s - cpu_s, _others_s((_num_waits() or 0) - num_waits, wall_s, process_s - cpu_s))
    return BatchOutcome(event, result, wall_s, cpu_s, overlap_s)


def _run_with_room(batch: LocalBatch, executor: ProgramExecutor, results: ProgramResults) -> BatchResult | BatchError:
    """Runs a batch; once more, if its device had no memory left and others' results could be moved from there."""

    def run() -> BatchResult | BatchError:
        return executor.run(batch.columns, batch.statics, results.reserve, batch.span, batch.chain, batch.seen)

    result, devices = run(), results.devices
    if devices is None or executor.device is None:
        return result
    accelerator = executor.device.accelerator
    if isinstance(result, BatchError) and result.is_out_of_device:
        kept_bytes = devices.bytes_on(accelerator)
        if executor.program.options.is_repeatable and devices.move_out(accelerator):
            accelerator.free_cache()
            result = run()
        if isinstance(result, BatchError) and result.is_out_of_device:
            at_last = devices.bytes_on(accelerator)
            text = f"results that stay there took {kept_bytes} of its bytes, and take {at_last} now"
            return replace(result, message=f"{result.message} ({text})")
    if changed := [block for rows in batch.columns if isinstance(rows, DeviceRows) for block in rows.changed()]:
        for _, number in changed:
            devices.release(number)  # those who need it get a new one: its program runs again
        return BatchError("InvalidInputError", executor.device.written_text(), "")
    return result


def _others_s(num_waits: int, wall_s: float, others_cpu_s: float) -> float:
    """Returns for how long others ran in a batch's place.

    A thread that waits for the interpreter wakes up after each switch interval to request it. One that waits for anything else,
    such as a device or a time, sleeps until that comes. So the number of waits tells the two apart.

    Args:
        num_waits: How many times it gave up its core to wait.
        others_cpu_s: For how long other threads of this process computed meanwhile.
    """
    if not num_waits:
        return wall_s  # it was interrupted
    return min(others_cpu_s, num_waits * _INTERVALS_OF_WAIT * sys.getswitchinterval())


def _num_waits() -> int | None:
    """Returns how many times this thread has given up its core to wait, for a time, a lock or a device; None where the system
    does not count them for a thread."""
    if sys.platform != "linux":
        return None
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def keep_when_room(
    batch: LocalBatch, result: BatchResult, results: ProgramResults, wait: Callable[[float], object], max_wait_s: float
) -> BatchDone | BatchFailed:
    """Copies the results of a batch as soon as there is room for them.

    Args:
        wait: Waits until something was freed, at most this long.
        max_wait_s: How long to try, unless the engine wants less.
    """
    give_up_s = time.monotonic() + max_wait_s * batch.room_share
    try:
        while True:
            event = _keep(batch, result, results)
            if not isinstance(event, NoRoomError):
                return event
            left_s = give_up_s - time.monotonic()
            if left_s <= 0:
                message = event.within("the server's arena", max_wait_s, batch.room_share)
                return BatchFailed(batch.replica_id, batch.batch_id, "NoRoomError", message, "", is_capacity=True)
            wait(left_s)
    finally:
        results.done()
        batch.done()


def _keep(batch: LocalBatch, result: BatchResult, results: ProgramResults) -> BatchDone | BatchFailed | NoRoomError:
    """Copies a batch's results, and returns its event; the error if there is no room for them now."""
    started_s = time.perf_counter()
    try:
        outputs = results.keep(result.outputs)
    except NoRoomError as error:
        try:
            results.check_beside(error.num_bytes, batch.stored)
        except TooLargeError as never:
            return BatchFailed(batch.replica_id, batch.batch_id, type(never).__name__, str(never))
        return error.with_traceback(None)  # its frames hold the results
    except Exception as error:  # ours, or a device's
        return BatchFailed(batch.replica_id, batch.batch_id, type(error).__name__, str(error))
    gather_s, publish_s = batch.gather_s + result.stack_s, result.split_s + time.perf_counter() - started_s
    infer_s = result.execute_s - result.stack_s - result.split_s
    return BatchDone(batch.replica_id, batch.batch_id, outputs, result.execute_s, gather_s, infer_s, publish_s, batch.moves)
