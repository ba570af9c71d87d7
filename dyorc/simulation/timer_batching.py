"""Ray Serve's way to form batches, in place of the engine's scheduler, to compare DyOrc with.

Each replica has its own queue; a call goes to the less busy of two replicas drawn at random. A batch is closed when it is
full, or a fixed time after its first call, even while the replica is busy; then it waits as it is. The way to the replica and
the programs' costs are those of the other policies, so the difference is the batching alone: Ray Serve's own cost per
hop is left out, and so is its default of 5 ongoing requests per replica, which would cap the batches.

Source: Ray 2.60, ``ray/serve/batching.py`` (``_process_batches`` closes a batch, then waits for the executor) and
``ray/serve/_private/request_router/pow_2_router.py``.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from dyorc.authoring.program import Program
from dyorc.engine.actions import DispatchBatch, FormReason
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import BatchDone, ReplicaJoined
from dyorc.engine.interfaces import Load, ReplicaEvent
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.timers import Timer, TimerKind
from dyorc.engine.turn import CallDone
from dyorc.errors import InternalError
from dyorc.simulation.basic_scheduler import BasicScheduler

NS_PER_S = 1_000_000_000


class Batcher:
    """The queue of one replica.

    Attributes:
        open: The batch that still grows.
        num_ongoing: Calls that were routed here and have not returned.
    """

    __slots__ = ("num_ongoing", "open", "program", "replica_id", "timer")

    def __init__(self, replica_id: str, program: Program) -> None:
        self.replica_id = replica_id
        self.program = program
        self.open: list[Call] = []
        self.num_ongoing = 0
        self.timer: Timer | None = None


class TimerScheduler(BasicScheduler):
    """A scheduler for `dyorc.engine.engine.Engine` whose replicas neither fail nor leave.

    Args:
        programs: What is deployed, by name.
        wait_s: How long a batch stays open after its first call (Ray Serve's ``batch_wait_timeout_s``; its default is 0.01).
        seed: For the routing.
    """

    def __init__(self, context: EngineContext, programs: Mapping[str, Program], wait_s: float = 0.01, seed: int = 0) -> None:
        super().__init__(context)
        self._timers = context.timers
        self._wait_ns = round(wait_s * NS_PER_S)
        self._rng = random.Random(seed)
        self._programs = programs
        self._batchers: dict[str, Batcher] = {}
        self._by_program: dict[str, list[Batcher]] = {name: [] for name in programs}
        self._batches: dict[int, tuple[Batcher, list[Call]]] = {}
        self._num_batches = 0

    def submit(self, call: Call) -> None:
        """Routes a call to a replica and puts it into the batch that is open there."""
        batcher = self._route(self._by_program[call.callee.name])
        call.enqueue()
        batcher.num_ongoing += 1
        batcher.open.append(call)
        if len(batcher.open) >= batcher.program.options.max_batch_size:
            self._close(batcher)
        elif len(batcher.open) == 1:
            batcher.timer = self._timers.set(self._turn.now_ns + self._wait_ns, TimerKind.POOL, batcher.replica_id)

    def submit_all(self, calls: Sequence[Call]) -> None:
        """Does the same for several."""
        for call in calls:
            self.submit(call)

    def take(self, event: ReplicaEvent) -> None:
        """Adds a replica that is ready, or ends a batch that ran."""
        match event:
            case ReplicaJoined():
                batcher = Batcher(event.replica_id, self._programs[event.program])
                self._batchers[event.replica_id] = batcher
                self._by_program[event.program].append(batcher)
            case BatchDone():
                batcher, calls = self._batches.pop(event.batch_id)
                batcher.num_ongoing -= len(calls)
                self._turn.ended.extend([CallDone(call, outputs) for call, outputs in zip(calls, event.outputs, strict=True)])
            case _:
                raise InternalError(f"simulated replicas neither fail nor leave, but there was {event}")

    def fire(self, timer: Timer) -> None:
        """Closes a batch that has been open for long enough."""
        self._close(self._batchers[str(timer.key)])

    def load(self, program: str) -> Load:
        """Returns how many calls wait and run; nothing is measured."""
        num_queued = sum(len(batcher.open) for batcher in self._by_program[program])
        num_running = sum(len(calls) for batcher, calls in self._batches.values() if batcher.program.name == program)
        return Load(num_queued, num_running, None, self._programs[program].options.max_batch_size)

    def report(self, program: str) -> dict[str, Any]:
        """Returns how many calls wait in open batches."""
        return {"num_queued": sum(len(batcher.open) for batcher in self._by_program[program])}

    def _route(self, batchers: list[Batcher]) -> Batcher:
        """Returns the less busy of two batchers drawn at random."""
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
            call.dispatch()
        self._num_batches += 1
        self._batches[self._num_batches] = batcher, calls
        options = batcher.program.options
        full = FormReason.FULL if options.batched else FormReason.ALONE
        reason = full if len(calls) == options.max_batch_size else FormReason.QUEUE_EMPTIED
        operands = [call.operands for call in calls]
        dispatch = DispatchBatch(batcher.replica_id, self._num_batches, batcher.program, operands, calls[0].statics, reason)
        self._turn.actions.append(dispatch)
