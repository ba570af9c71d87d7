"""Ray Serve's way to form batches, in the place of the engine's scheduler: what DyOrc is compared with.

Each replica has a queue of its own; a call goes to the less busy of two replicas drawn at random. A batch is closed when it is
full, or a fixed time after its first call, even while the replica is busy; then it waits as it is. The way to the replica and
the programs' costs are those of the other policies, so the difference is the batching alone: Ray Serve's own cost per
hop is left out, and so is its default of 5 ongoing requests per replica, which would cap the batches.

Source: Ray 2.60, ``ray/serve/batching.py`` (``_process_batches`` closes a batch, then waits for the executor) and
``ray/serve/_private/request_router/pow_2_router.py``.
"""

import random
from collections.abc import Callable, Iterable

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.engine.actions import Action, DispatchBatch, FormReason
from dyorc.engine.events import BatchDone, BatchFailed, LoadFailed, ReplicaJoined
from dyorc.engine.model.cells import Call, CallState
from dyorc.engine.timers import Timer, TimerKind, Timers
from dyorc.errors import CapacityError, DyOrcError, InternalError
from dyorc.tensor import TensorRef

NS_PER_S = 1_000_000_000


class Batcher:
    """The queue of one replica.

    Attributes:
        open: The batch that still grows.
        num_ongoing: Calls that were routed here and have not come back.
    """

    __slots__ = ("num_ongoing", "open", "program", "replica_id", "timer")

    def __init__(self, replica_id: str, program: Program) -> None:
        self.replica_id = replica_id
        self.program = program
        self.open: list[Call] = []
        self.num_ongoing = 0
        self.timer: Timer | None = None


class TimerScheduler:
    """Stands in for `dyorc.engine.scheduling.scheduler.Scheduler`, with its interface; replicas here neither fail nor leave.

    Args:
        done: Told of each call that ran, with its outputs.
        emit: Takes actions.
        wait_s: How long a batch stays open after its first call (Ray Serve's ``batch_wait_timeout_s``; its default is 0.01).
        seed: For the routing.
    """

    def __init__(
        self,
        programs: Iterable[Program],
        timers: Timers,
        done: Callable[[Call, tuple[TensorRef, ...], int], None],
        emit: Callable[[Action], None],
        wait_s: float = 0.01,
        seed: int = 0,
    ) -> None:
        self._timers = timers
        self._done = done
        self._emit = emit
        self._wait_ns = round(wait_s * NS_PER_S)
        self._rng = random.Random(seed)
        self._programs = {program.name: program for program in programs}
        self._batchers: dict[str, Batcher] = {}
        self._by_program: dict[str, list[Batcher]] = {name: [] for name in self._programs}
        self._batches: dict[int, tuple[Batcher, list[Call]]] = {}
        self._num_batches = 0
        self.now_ns = 0

    def take_late(self) -> list[tuple[Call, DyOrcError]]:
        """Nothing is refused here."""
        return []

    def check_room(self, programs: Iterable[Program]) -> CapacityError | None:
        """There is always room."""
        return None

    def submit(self, call: Call, now_ns: int) -> None:
        """Routes a call to a replica and puts it into the batch that is open there."""
        batcher = self._route(self._by_program[call.callee.name])
        call.state = CallState.QUEUED
        batcher.num_ongoing += 1
        batcher.open.append(call)
        if len(batcher.open) >= batcher.program.options.max_batch_size:
            self._close(batcher)
        elif len(batcher.open) == 1:
            # The engine hands this kind of timer back through `touch`, whatever its key.
            batcher.timer = self._timers.set(now_ns + self._wait_ns, TimerKind.POOL, batcher.replica_id)

    def withdraw(self, call: Call) -> None:
        """A call that nobody needs is dropped when its batch is closed."""

    def task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        """Nobody looks ahead here."""

    def replica_joined(self, event: ReplicaJoined) -> None:
        """A replica is ready."""
        batcher = Batcher(event.replica_id, self._programs[event.program])
        self._batchers[event.replica_id] = batcher
        self._by_program[event.program].append(batcher)

    def touch(self, replica_id: str) -> None:
        """A batch has been open for long enough."""
        self._close(self._batchers[replica_id])

    def form_batches(self, now_ns: int) -> None:
        """Nothing to do: batches are closed by their size and by timers."""

    def batch_done(self, event: BatchDone, now_ns: int) -> None:
        """A batch ran."""
        batcher, calls = self._batches.pop(event.batch_id)
        batcher.num_ongoing -= len(calls)
        for call, outputs in zip(calls, event.outputs, strict=True):
            self._done(call, outputs, now_ns)

    def batch_failed(self, event: BatchFailed, now_ns: int) -> None:
        raise InternalError(f"a simulated batch failed: {event.message}")

    def replica_left(self, replica_id: str, reason: str) -> None:
        raise InternalError(f"simulated replica {replica_id} left: {reason}")

    def load_failed(self, event: LoadFailed) -> None:
        raise InternalError(f"simulated program {event.program} failed to load: {event.message}")

    def execution_timed_out(self, batch_id: int) -> None:
        raise InternalError(f"simulated batch {batch_id} timed out, though no timer was set for it")

    def _route(self, batchers: list[Batcher]) -> Batcher:
        """The less busy of two."""
        if len(batchers) == 1:
            return batchers[0]
        first = self._rng.randrange(len(batchers))
        second = self._rng.randrange(len(batchers) - 1)
        a, b = batchers[first], batchers[second + (second >= first)]
        return b if b.num_ongoing < a.num_ongoing else a

    def _close(self, batcher: Batcher) -> None:
        if batcher.timer is not None:
            self._timers.cancel(batcher.timer)
            batcher.timer = None
        waiting, batcher.open = batcher.open, []
        calls = [call for call in waiting if call.state is CallState.QUEUED]
        batcher.num_ongoing -= len(waiting) - len(calls)
        if not calls:
            return
        for call in calls:
            call.state = CallState.RUNNING
        self._num_batches += 1
        self._batches[self._num_batches] = batcher, calls
        reason = FormReason.FULL if len(calls) == batcher.program.options.max_batch_size else FormReason.QUEUE_EMPTIED
        operands = [call.operands for call in calls]
        self._emit(DispatchBatch(batcher.replica_id, self._num_batches, batcher.program, operands, calls[0].statics, reason))
