"""A loaded program in this process: runs its batches, and decides where."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import numpy as np
import structlog

from dyorc.answering.tensor_exchange import Tensors
from dyorc.authoring.program import Program
from dyorc.cells.batches import BatchOutcome, CrashNotes, LocalBatch, keep_when_room, run_batch
from dyorc.cells.inline_rule import InlineRule
from dyorc.cells.loop_watch import BatchWatchdog
from dyorc.cells.program_group import ProgramGroup
from dyorc.cells.program_tensors import ProgramInputs, ProgramResults
from dyorc.core.arrays import Array
from dyorc.core.tensor import blocks_of, is_resident
from dyorc.devices.device_tensors import DeviceTensors
from dyorc.engine.events import BatchDone, BatchFailed, Event, ReplicaJoined, ReplicaLeft, TensorsLost
from dyorc.models.status import StatusBoard
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.program_device import is_movable
from dyorc.replica.program_lifecycle import Leftovers
from dyorc.replica.program_thread import ProgramThread
from dyorc.transport.outbox import Outbox

_log = structlog.get_logger("dyorc.cells")

LOOP = "/loop"
"""Appended to the node's name, this names the event loop as a processor."""

NUM_COMPARED = 3
"""This many first batches on the loop also run on the thread, and the results are compared."""
_TOLERANCE = 1e-3
"""Relative, for floats: with another number of threads, kernels may add up in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetContext:
    """What the programs of a fleet share.

    Attributes:
        node: This machine.
        num_cores: How many cores it has for programs; 0 for a program with its own device.
        inline_limit_s: See `InlineRule`.
        room_wait_s: How long results wait for room in the arena.
        wait_for_room: Waits until something in the arena was freed, at most this long.
        post, flush: See `Fleet.running`.
        notes: Notes what runs; None if no other process reads that.
        watch: Interrupts batches that block the loop.
        devices: What programs keep on devices; None: nothing.
    """

    node: str
    num_cores: int
    inline_limit_s: float
    room_wait_s: float
    wait_for_room: Callable[[float], object]
    tensors: Tensors
    status: StatusBoard
    post: Callable[[Event], None]
    flush: Callable[[], None]
    notes: CrashNotes | None = None
    watch: BatchWatchdog
    devices: DeviceTensors | None = None


_numbers = count(1)


def new_replica_id(program: str) -> str:
    """Returns a name for a program of this process that no other had."""
    return f"{program}-in-process-{next(_numbers)}"


class HostedProgram:
    """Runs the batches of one program, on the event loop or on the program's thread, as `InlineRule` says.

    The engine knows a program on a thread as a replica that shares the machine's cores, and one on the loop as a replica on a
    processor with a single core, which all such programs share: so no guess runs there while certain work does. The thread of a
    group of programs is such a processor, too. A program that moves leaves as one replica and joins as another. It moves only
    while the engine has no batch there, since the calls of a replica that leaves run again. To reach such a moment, results are
    withheld until all batches have ended; the engine sends at most two batches before the first has come back.

    A batch that fails on the loop, or blocks it, runs again on the thread, with inputs that are read again: what a library
    has made on a thread may only work there, and such errors have many forms. If it succeeds there, the program stays there. So
    only repeatable programs move to the loop. The first batches there always run again on the thread, to compare the results.

    Args:
        program: A loaded program.
        thread: The thread that has loaded it.
        may_move: Whether it may run on the event loop.
        group: The programs that it shares its thread and residents with; None if it shares nothing.

    Attributes:
        program: The program's name.
        thread, group: As given.
        process: Under which name its group holds residents; empty if it shares nothing.
        inputs: Reads its inputs.
        replica_id: The engine's present name for it.
        is_inline: Whether the next batch runs on the loop.
        num_inline: Batches that ran on the loop.
        num_on_thread: Batches that ran on the thread.
        num_run_again: Batches that ran on the thread because they had failed on the loop, or blocked it.
    """

    def __init__(
        self,
        program: Program,
        executor: ProgramExecutor,
        thread: ProgramThread,
        context: FleetContext,
        *,
        may_move: bool = True,
        group: ProgramGroup | None = None,
    ) -> None:
        executor.reuse_memory()  # its outputs are copied before the next batch
        self.program = program.name
        self._executor = executor
        self.thread = thread
        tensors = context.tensors
        self.group = group
        self.process = "" if group is None else group.residents.process
        residents = None if group is None else group.residents
        outbox = Outbox(tensors.exchange.arena, tensors.inline_limit_bytes)
        on_device: tuple[bool, ...] = ()
        if executor.device is not None and context.devices is not None:
            executor.device.is_keeping = True
            on_device = tuple(map(is_movable, program.signature.inputs))
            may_move = False  # waiting for the device would block the loop
        self.inputs = ProgramInputs(tensors, residents, on_device=on_device)
        self._results = ProgramResults(context.node, outbox, residents, context.devices)
        self._context = context
        may_move = may_move and group is None and program.options.thread == "auto" and program.options.is_repeatable
        self._rule = InlineRule(context.inline_limit_s, can_stretch=context.num_cores > 0, may_move=may_move)
        self.replica_id = ""
        self.is_inline = False
        self._is_known_inline = False
        self._num_held = 0
        self._num_at_thread = 0
        self._withheld: list[Event] = []
        self._reasons: dict[int, str] = {}
        """Why batches are run again."""
        self._num_compared = 0
        self._compared: dict[int, Sequence[Array]] = {}
        """Results of batches on the loop that are run again to be compared."""
        self.num_inline = 0
        self.num_on_thread = 0
        self.num_run_again = 0

    # To the engine

    def join(self) -> None:
        """Announces the program, under a new name."""
        old, status = self.replica_id, self._context.status
        self.replica_id = new_replica_id(self.program)
        status.joined(self.program, self.replica_id, os.getpid())
        if old:
            _log.info("program_moved", program=self.program, is_inline=self._is_known_inline)
            status.left(old)
            self._context.post(ReplicaLeft(old, "it moves between the event loop and its thread"))
        else:
            _log.info("replica_joined", program=self.program, replica=self.replica_id, pid=os.getpid(), node=self._context.node)
        self.join_again()

    def join_again(self) -> None:
        """Announces the program under the name it has."""
        node, num_cores = self._context.node, self._context.num_cores
        if self._is_known_inline:
            node, num_cores = node + LOOP, 1
        elif self.group is not None:
            node, num_cores = f"{node}/{self.group.name}", 1
        self._context.post(ReplicaJoined(self.replica_id, self.program, node, num_cores, self.process))

    def leftovers(self) -> Leftovers:
        """Returns what watches whether the loaded program is freed once it is dropped."""
        return Leftovers(self._executor.function)

    def drop(self) -> None:
        """Drops the program, and ends its thread, unless others of its group use that. No batch may be running."""
        if self.group is None:
            self.thread.stop()
        else:
            self.group.left(self.program)
        self.inputs.close()
        self._context.status.left(self.replica_id)

    def give_up(self) -> None:
        """Drops a program whose thread hangs. The thread is interrupted, and reports nothing."""
        if self.group is None:
            self.thread.give_up()
        self.inputs.close()
        self._context.status.left(self.replica_id)

    # Batches

    def hold(self) -> None:
        """Notes that the engine has sent a batch. `run` or `report` follows."""
        self._num_held += 1

    def run(self, batch: LocalBatch, run_again: Callable[[], None] | None = None) -> None:
        """Runs a batch: now on the loop, or on the thread after those before it.

        Args:
            run_again: Reads its inputs again and calls this again; for batches that may be run on the loop.
        """
        if self.is_inline and run_again is not None:
            self._run_inline(batch, run_again)
        else:
            self._submit(batch, lambda: self._run_and_keep(batch))

    def _run(self, batch: LocalBatch) -> BatchOutcome:
        """Runs a batch on the calling thread. Inputs that may crash this process are noted meanwhile."""
        notes = self._context.notes
        if notes is None or not batch.inputs:
            return run_batch(batch, self._executor, self._results)
        notes.begin(self.program, batch.inputs, is_suspect=batch.is_suspect)
        try:
            return run_batch(batch, self._executor, self._results)
        finally:
            notes.end(self.program)

    def report(self, event: Event) -> None:
        """Reports that a batch has ended."""
        self._num_held -= 1
        self._withheld.append(event)
        self._settle()

    def _run_inline(self, batch: LocalBatch, run_again: Callable[[], None]) -> None:
        watch = self._context.watch
        watch.begin()
        try:
            outcome = self.thread.run_here(partial(self._run, batch))
        finally:
            harm = watch.end()
        self.num_inline += 1
        if not harm and isinstance(outcome.event, BatchFailed) and outcome.event.input_at >= 0:
            self._end(batch, outcome.event)  # the program has not run, so nothing is learned of it
            return
        self._rule.observe(batch.num_calls, outcome.wall_s, outcome.cpu_s, outcome.overlap_s)
        if harm:  # even if it succeeded: the program may have continued after an interruption
            self._discard_inline(batch, outcome, harm)
            self._stay(batch.batch_id)
            run_again()
        elif isinstance(outcome.event, BatchFailed):
            reason = f"on the event loop it raised {outcome.event.error_type}: {outcome.event.message}"
            self._discard_inline(batch, outcome, reason)
            run_again()
        elif outcome.event is None:  # waiting for room would block the loop
            self.is_inline = False
            self._submit(batch, lambda: self._keep(batch, outcome))
        elif self._num_compared < NUM_COMPARED:
            self._num_compared += 1
            self._compared[batch.batch_id] = _arrays_of(outcome.event)
            self._discard_inline(batch, outcome)
            run_again()
        else:
            self._end(batch, outcome.event)

    def _discard_inline(self, batch: LocalBatch, outcome: BatchOutcome, reason: str = "") -> None:
        """Discards the outcome of a batch on the loop; the batch runs again on the thread.

        Args:
            reason: Why the outcome is worthless; empty: it is only compared.
        """
        self.is_inline = False
        if reason:
            self.num_run_again += 1
            self._reasons[batch.batch_id] = reason
        if isinstance(outcome.event, BatchDone):
            self._free(outcome.event)
        elif outcome.event is None:
            self._results.done()
            batch.done()

    def _stay(self, batch_id: int) -> None:
        """Keeps the program on its thread, if this batch has shown that it needs it."""
        if (reason := self._reasons.pop(batch_id, None)) is not None:
            _log.warning("program_needs_its_thread", program=self.program, reason=reason)
            self._rule.stay()

    def _compare(self, batch_id: int, event: BatchDone) -> None:
        """Compares results with those from the loop: without a thread's own settings, they may differ without any error."""
        on_loop = self._compared.pop(batch_id, None)
        if on_loop is not None and not _are_alike(on_loop, _arrays_of(event)):
            self._reasons[batch_id] = "its results on the event loop were different"

    def _submit(self, batch: LocalBatch, job: Callable[[], tuple[BatchOutcome, BatchDone | BatchFailed]]) -> None:
        self._num_at_thread += 1
        self.thread.submit(job, partial(self._finish, batch))

    def _run_and_keep(self, batch: LocalBatch) -> tuple[BatchOutcome, BatchDone | BatchFailed]:
        outcome = self._run(batch)
        return self._keep(batch, outcome) if outcome.event is None else (outcome, outcome.event)

    def _keep(self, batch: LocalBatch, outcome: BatchOutcome) -> tuple[BatchOutcome, BatchDone | BatchFailed]:
        assert outcome.result is not None
        wait, wait_s = self._context.wait_for_room, self._context.room_wait_s
        event = keep_when_room(batch, outcome.result, self._results, wait, wait_s)
        return replace(outcome, event=event, result=None), event  # the loop must not be the last to hold a resident

    def _finish(self, batch: LocalBatch, ended: tuple[BatchOutcome, BatchDone | BatchFailed]) -> None:
        outcome, event = ended
        self._num_at_thread -= 1
        self.num_on_thread += 1
        if isinstance(event, BatchDone):
            self._compare(batch.batch_id, event)
            self._stay(batch.batch_id)
        else:
            self._compared.pop(batch.batch_id, None)
            self._reasons.pop(batch.batch_id, None)  # it fails everywhere
        if not self._rule.is_inline and (isinstance(event, BatchDone) or event.input_at < 0):
            self._rule.observe(batch.num_calls, outcome.wall_s, outcome.cpu_s, outcome.overlap_s)
        self._end(batch, event)
        self._context.flush()

    def _end(self, batch: LocalBatch, event: BatchDone | BatchFailed) -> None:
        """Reports a batch, unless an input was freed while it was read: then its results are worthless."""
        lost = batch.lost
        if batch.stored and batch.inbox is None:
            lost = self._context.tensors.lost_of(batch.stored)
        if not lost:
            self.report(event)
            return
        if isinstance(event, BatchDone):
            self._free(event)
        self.report(TensorsLost(batch.replica_id, batch.batch_id, lost))

    def _free(self, event: BatchDone) -> None:
        tensors = [tensor for outputs in event.outputs for tensor in outputs]
        if self.group is not None:
            self.group.release(tensor.block for tensor in tensors if is_resident(tensor))
        self._context.tensors.free(blocks_of(tensors))

    def _settle(self) -> None:
        """Posts the withheld events, and moves the program, unless it is about to move and the engine has batches here."""
        if not self.is_inline and self._rule.is_inline and not self._num_at_thread:
            self._executor.settle_thread()
        self.is_inline = self._rule.is_inline and not self._num_at_thread
        is_moving = self._rule.is_inline is not self._is_known_inline
        if is_moving and self._num_held:
            return
        for event in self._withheld:
            self._context.post(event)
        self._withheld.clear()
        if is_moving:
            self._is_known_inline = self._rule.is_inline
            self.join()


def _arrays_of(event: BatchDone) -> Sequence[Array]:
    """Returns the results that are not in an arena."""
    return [tensor.data for outputs in event.outputs for tensor in outputs if tensor.data is not None]


def _are_alike(before: Sequence[Array], after: Sequence[Array]) -> bool:
    return len(before) == len(after) and all(map(_is_array_alike, before, after))


def _is_array_alike(before: Array, after: Array) -> bool:
    if before.dtype != after.dtype or before.shape != after.shape:
        return False
    if before.dtype.kind != "f":
        return bool(np.array_equal(before, after))
    largest = float(np.abs(before[np.isfinite(before)]).max(initial=0))
    return bool(np.allclose(before, after, rtol=_TOLERANCE, atol=_TOLERANCE * largest, equal_nan=True))
