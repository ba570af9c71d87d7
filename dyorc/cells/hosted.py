"""A loaded program in this process: runs its batches, and knows where."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
import structlog

from dyorc.answering.tensor_exchange import Tensors
from dyorc.authoring.program import Program
from dyorc.cells.batches import BatchOutcome, LocalBatch, keep_when_room, run_batch
from dyorc.cells.inline_rule import InlineRule
from dyorc.cells.inputs import ProgramInputs
from dyorc.cells.loop_watch import BatchWatchdog
from dyorc.cells.notes import CrashNotes
from dyorc.cells.program_thread import ProgramThread
from dyorc.cells.results import ProgramResults
from dyorc.core.arrays import Array
from dyorc.core.tensor import blocks_of
from dyorc.engine.events import BatchDone, BatchFailed, Event, ReplicaJoined, ReplicaLeft, TensorsLost
from dyorc.models.status import StatusBoard
from dyorc.replica.executor import ProgramExecutor
from dyorc.transport.outbox import Outbox

_log = structlog.get_logger("dyorc.cells")

LOOP = "/loop"
"""Added to the node's name, this names the event loop as a processor."""


NUM_COMPARED = 3
"""The first batches on the loop are run on the thread, too, and the results compared."""
_TOLERANCE = 1e-3
"""Relative, for floats: kernels may divide their work among another number of threads, and so add up in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetContext:
    """What the programs of a fleet share.

    Attributes:
        node: This machine.
        num_cores: How many cores it has for programs; 0 for a program with a device of its own.
        inline_limit_s: See `InlineRule`.
        room_wait_s: How long results wait for room in the arena.
        wait_for_room: Waits until something in the arena was freed, at most so long.
        post, flush: See `Fleet.running`.
        notes: Where it is noted what runs; None if nobody reads that.
        watch: Interrupts batches that hold the loop up.
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


class HostedProgram:
    """Runs the batches of one program, on the event loop or on the program's thread, as `InlineRule` says.

    The engine knows a program on a thread as a replica that shares the machine's cores, and one on the loop as a replica on a
    processor with a single core, which all such programs share: so no guess runs there while something certain does. A program
    that moves leaves as one replica and joins as another. It does so at a moment at which the engine has no batch there, for
    calls of a replica that leaves are run again. To get such a moment, results are withheld until all batches have ended; the
    engine sends no more than two before the first has come back.

    A batch that fails on the loop, or holds it up, is run again on the thread, with inputs that were read again: what a library
    has made on a thread may only work there, and such errors have many forms. If it succeeds there, the program stays. So only
    programs that may be repeated come to the loop. The first batches there are run again in any case, and compared.

    Args:
        program: It is loaded.
        thread: It has loaded the program.
        may_move: Whether it may run anywhere but there.

    Attributes:
        program: Its name.
        inputs: Where it reads them.
        replica_id: As the engine knows it now.
        is_inline: Where the next batch runs.
        num_inline: Batches that ran on the loop.
        num_on_thread: Batches that ran on the thread.
        num_run_again: Batches that ran there because they had failed on the loop, or held it up.
    """

    _numbers = count(1)

    def __init__(
        self,
        program: Program,
        executor: ProgramExecutor,
        thread: ProgramThread,
        context: FleetContext,
        *,
        may_move: bool = True,
    ) -> None:
        executor.reuse_memory()  # its outputs are copied before the next batch
        self.program = program.name
        self._executor = executor
        self.thread = thread
        tensors = context.tensors
        self.inputs = ProgramInputs(tensors)
        self._results = ProgramResults(context.node, Outbox(tensors.exchange.arena, tensors.inline_limit_bytes))
        self._context = context
        may_move = may_move and program.options.thread == "auto" and program.options.is_repeatable
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
        self.replica_id = f"{self.program}-in-process-{next(self._numbers)}"
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
        self._context.post(ReplicaJoined(self.replica_id, self.program, node, num_cores))

    def drop(self) -> None:
        """Nothing runs, and nothing will: ends the thread, and lets go of the program."""
        self.thread.stop()
        self.inputs.close()
        self._context.status.left(self.replica_id)

    def give_up(self) -> None:
        """A batch hangs: tells nothing any more, and lets the thread end if it can."""
        self.thread.give_up()
        self.inputs.close()
        self._context.status.left(self.replica_id)

    # Batches

    def hold(self) -> None:
        """The engine has sent a batch. `run` or `report` follows."""
        self._num_held += 1

    def run(self, batch: LocalBatch, run_again: Callable[[], None] | None = None) -> None:
        """Runs a batch: now, or behind those that the thread has.

        Args:
            run_again: Reads its inputs again and calls this again; for batches that may be run on the loop.
        """
        if self.is_inline and run_again is not None:
            self._run_inline(batch, run_again)
        else:
            self._at_thread(batch, lambda: self._run_to_the_end(batch))

    def _run(self, batch: LocalBatch) -> BatchOutcome:
        """Runs a batch, here. What may end this process is noted while it runs."""
        notes = self._context.notes
        if notes is None or not batch.inputs:
            return run_batch(batch, self._executor, self._results)
        notes.begin(self.program, batch.inputs, is_suspect=batch.is_suspect)
        try:
            return run_batch(batch, self._executor, self._results)
        finally:
            notes.end(self.program)

    def report(self, event: Event) -> None:
        """A batch has ended."""
        self._num_held -= 1
        self._withheld.append(event)
        self._settle()

    def _run_inline(self, batch: LocalBatch, run_again: Callable[[], None]) -> None:
        watch = self._context.watch
        watch.begin()
        try:
            ran = self.thread.run_here(partial(self._run, batch))
        finally:
            harm = watch.end()
        self.num_inline += 1
        self._rule.observe(batch.num_calls, ran.wall_s, ran.cpu_s, ran.overlap_s)
        if harm:  # whatever came of it: the program may have gone on after an interruption
            self._give_to_thread(batch, ran, harm)
            self._stay(batch.batch_id)
            run_again()
        elif isinstance(ran.event, BatchFailed):
            self._give_to_thread(batch, ran, f"on the event loop it raised {ran.event.error_type}: {ran.event.message}")
            run_again()
        elif ran.event is None:  # waiting is not for the loop
            self.is_inline = False
            self._at_thread(batch, lambda: self._keep(batch, ran))
        elif self._num_compared < NUM_COMPARED:
            self._num_compared += 1
            self._compared[batch.batch_id] = _arrays_of(ran.event)
            self._give_to_thread(batch, ran)
            run_again()
        else:
            self._end(batch, ran.event)

    def _give_to_thread(self, batch: LocalBatch, ran: BatchOutcome, reason: str = "") -> None:
        """Prepares for running a batch again, on the thread: what came of it on the loop is not used.

        Args:
            reason: Why it is worthless; empty: it is only compared.
        """
        self.is_inline = False
        if reason:
            self.num_run_again += 1
            self._reasons[batch.batch_id] = reason
        if isinstance(ran.event, BatchDone):
            self._free(ran.event)
        elif ran.event is None:
            self._results.done()
            batch.done()

    def _stay(self, batch_id: int) -> None:
        """Keeps the program on its thread, which a batch has shown to be needed."""
        if (reason := self._reasons.pop(batch_id, None)) is not None:
            _log.warning("program_needs_its_thread", program=self.program, reason=reason)
            self._rule.stay()

    def _compare(self, batch_id: int, event: BatchDone) -> None:
        """Compares results with those from the loop: what a thread has set for itself may be missed there without any error."""
        on_loop = self._compared.pop(batch_id, None)
        if on_loop is not None and not _is_alike(on_loop, _arrays_of(event)):
            self._reasons[batch_id] = "its results on the event loop were others"

    def _at_thread(self, batch: LocalBatch, job: Callable[[], tuple[BatchOutcome, BatchDone | BatchFailed]]) -> None:
        self._num_at_thread += 1
        self.thread.submit(job, partial(self._came_back, batch))

    def _run_to_the_end(self, batch: LocalBatch) -> tuple[BatchOutcome, BatchDone | BatchFailed]:
        ran = self._run(batch)
        return self._keep(batch, ran) if ran.event is None else (ran, ran.event)

    def _keep(self, batch: LocalBatch, ran: BatchOutcome) -> tuple[BatchOutcome, BatchDone | BatchFailed]:
        assert ran.result is not None
        wait, wait_s = self._context.wait_for_room, self._context.room_wait_s
        return ran, keep_when_room(batch, ran.result, self._results, wait, wait_s)

    def _came_back(self, batch: LocalBatch, ended: tuple[BatchOutcome, BatchDone | BatchFailed]) -> None:
        ran, event = ended
        self._num_at_thread -= 1
        self.num_on_thread += 1
        if isinstance(event, BatchDone):
            self._compare(batch.batch_id, event)
            self._stay(batch.batch_id)
        else:
            self._compared.pop(batch.batch_id, None)
            self._reasons.pop(batch.batch_id, None)  # it fails everywhere
        if not self._rule.is_inline:
            self._rule.observe(batch.num_calls, ran.wall_s, ran.cpu_s, ran.overlap_s)
        self._end(batch, event)
        self._context.flush()

    def _end(self, batch: LocalBatch, event: BatchDone | BatchFailed) -> None:
        """Reports a batch, unless an input was taken away while it was read: then its results are worthless."""
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
        self._context.tensors.free(blocks_of(tensor for outputs in event.outputs for tensor in outputs))

    def _settle(self) -> None:
        """Tells the engine what it may know now, and moves if it is time."""
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


def _is_alike(ones: Sequence[Array], others: Sequence[Array]) -> bool:
    return len(ones) == len(others) and all(map(_is_array_alike, ones, others))


def _is_array_alike(one: Array, other: Array) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    largest = float(np.abs(one[np.isfinite(one)]).max(initial=0))
    return bool(np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE * largest, equal_nan=True))
