"""Queues, batches and replicas: decides which calls run together, where and when.

This side of the engine knows nothing of requests and workflows. It takes ready calls and says how they ended.
"""

from collections.abc import Callable, Iterable

from dyorc.authoring.program import Program
from dyorc.config import EngineConfig
from dyorc.engine.actions import Action, DispatchBatch, FormReason, ReleaseTensors, ReplaceReplica
from dyorc.engine.cells import Call, CallState
from dyorc.engine.events import BatchDone, BatchFailed, LoadFailed, ReplicaJoined
from dyorc.engine.replicas import NEVER_NS, Batch, Pool, Replica
from dyorc.engine.timers import TimerKind, Timers
from dyorc.errors import (
    CapacityError,
    DyOrcError,
    EffectLostError,
    ProgramError,
    ProgramLoadError,
    ReplicaLostError,
)
from dyorc.tensor import TensorRef, stored_ids

NS_PER_S = 1_000_000_000


class Scheduler:
    """Runs the calls of all requests on the replicas of all programs.

    Args:
        done: Told of each call that ran, with its outputs.
        failed: Told of each call that cannot be run.
        emit: Takes actions.
    """

    def __init__(
        self,
        config: EngineConfig,
        programs: Iterable[Program],
        timers: Timers,
        done: Callable[[Call, tuple[TensorRef, ...]], None],
        failed: Callable[[Call, DyOrcError], None],
        emit: Callable[[Action], None],
        first_batch_id: int = 1,
    ) -> None:
        self._config = config
        self._timers = timers
        self._done = done
        self._failed = failed
        self._emit = emit
        self.pools = {program.name: Pool(program, config.max_in_flight_batches) for program in programs}
        self.replicas: dict[str, Replica] = {}
        self.batches: dict[int, Batch] = {}
        self._next_batch_id = first_batch_id
        self._touched: dict[str, Pool] = {}

    # Calls

    def check_room(self, programs: Iterable[Program]) -> CapacityError | None:
        """Why a request that may call `programs` cannot be taken now, if so."""
        for program in programs:
            pool = self.pools.get(program.name)
            if pool is not None and len(pool.queue) >= program.options.max_queued_calls:
                return CapacityError(
                    f"{len(pool.queue)} calls of program {program.name!r} are waiting, "
                    f"the limit is {program.options.max_queued_calls}",
                    retry_after_s=self._drain_s(pool),
                )
        return None

    def submit(self, call: Call, now_ns: int) -> None:
        """Queues a call whose inputs are all there. (The time is for schedulers that close batches by it.)"""
        pool = self.pools[call.callee.name]
        if pool.load_error is not None and not pool.replicas:
            self._failed(call, pool.load_error)
            return
        pool.queue.add(call)
        self._touched[call.callee.name] = pool

    def withdraw(self, call: Call) -> None:
        """Takes back a call. One that runs already is left alone."""
        if call.state is CallState.QUEUED:
            self.pools[call.callee.name].queue.withdraw(call)

    # Replicas

    def replica_joined(self, event: ReplicaJoined) -> None:
        """A replica is ready. One that says so again is taken as it is known."""
        pool = self.pools.get(event.program)
        if pool is None or event.replica_id in self.replicas:
            return
        replica = Replica(event.replica_id, event.node, pool)
        self.replicas[event.replica_id] = replica
        pool.add(replica)
        pool.num_load_failures = 0
        pool.load_error = None
        self._touched[event.program] = pool

    def replica_left(self, replica_id: str, reason: str) -> None:
        """A replica is gone: its calls go back to the queue, or fail if they may not be repeated.

        Only the batch that was running can have been the cause. If a call has been in such a batch before, it is tried alone,
        so that an input that kills its replica does so in no one else's company.
        """
        replica = self.replicas.pop(replica_id, None)
        if replica is None:
            return
        replica.pool.remove(replica)
        for position, batch in enumerate(replica.batches.values()):
            self._forget(batch)
            for call in batch.calls:
                call.num_attempts += position == 0
                self._run_again(call, replica.pool, reason)
        replica.batches.clear()
        self._touched[replica.pool.program.name] = replica.pool

    def _run_again(self, call: Call, pool: Pool, reason: str) -> None:
        if call.state is not CallState.RUNNING:
            return
        name, limit = pool.program.name, self._config.max_attempts
        if not pool.program.options.is_repeatable:
            self._failed(
                call,
                EffectLostError(
                    f"the replica of program {name!r} was lost ({reason}); the program is not declared idempotent, "
                    f"so it is not run again"
                ),
            )
        elif call.num_attempts >= limit:
            self._failed(
                call,
                ReplicaLostError(
                    f"{call.num_attempts} replicas of program {name!r} were lost while they ran this call ({reason})"
                ),
            )
        elif call.num_attempts > 1:
            pool.queue.add_retry([call])
        else:
            pool.queue.add(call)

    def load_failed(self, event: LoadFailed) -> None:
        """A replica could not load its program. After some such failures in a row, waiting calls get to know why."""
        pool = self.pools.get(event.program)
        if pool is None:
            return
        pool.num_load_failures += 1
        if pool.num_load_failures >= self._config.max_load_failures:
            pool.load_error = ProgramLoadError(event.program, event.error_type, event.message, event.traceback)
            if not pool.replicas:
                for call in pool.queue.take_all():
                    self._failed(call, pool.load_error)

    # Batches

    def batch_done(self, event: BatchDone, now_ns: int) -> None:
        """A batch ran."""
        batch = self._take_back(event.replica_id, event.batch_id, now_ns)
        if batch is None:
            self._release(event)
            return
        pool = batch.replica.pool
        if len(event.outputs) != len(batch.calls):
            self._release(event)
            message = f"a batch of {len(batch.calls)} came back with {len(event.outputs)} results"
            self._split_or_fail(batch, ProgramError(pool.program.name, "TransportError", message))
            return
        pool.latency.observe(len(batch.calls), event.execute_s)
        batch.replica.latency.observe(len(batch.calls), event.execute_s)
        for call, outputs in zip(batch.calls, event.outputs, strict=True):
            self._done(call, outputs)

    def _release(self, event: BatchDone) -> None:
        """Nobody waits for this result any more."""
        stored = stored_ids(tensor for outputs in event.outputs for tensor in outputs)
        if stored:
            self._emit(ReleaseTensors(stored))

    def batch_failed(self, event: BatchFailed, now_ns: int) -> None:
        """A program raised: a batch of one fails; a larger one is halved and tried again, so that one bad input fails alone."""
        batch = self._take_back(event.replica_id, event.batch_id, now_ns)
        if batch is None:
            return
        error = ProgramError(batch.replica.pool.program.name, event.error_type, event.message, event.traceback)
        self._split_or_fail(batch, error)

    def _split_or_fail(self, batch: Batch, error: ProgramError) -> None:
        pool = batch.replica.pool
        calls = [call for call in batch.calls if call.state is CallState.RUNNING]
        if len(batch.calls) > 1 and pool.program.options.is_repeatable:
            # Also if one call is left: the bad input may have been that of a call which nobody needs any more.
            middle = len(calls) // 2
            for part in (calls[:middle], calls[middle:]):
                if part:
                    pool.queue.add_retry(part)
            return
        for call in calls:
            self._failed(call, error)

    def execution_timed_out(self, batch_id: int) -> None:
        """A batch has been running for longer than its program may."""
        batch = self.batches.get(batch_id)
        if batch is None:
            return
        replica_id = batch.replica.replica_id
        reason = f"no result after {batch.replica.pool.program.options.execution_timeout_s} s"
        self.replica_left(replica_id, reason)
        self._emit(ReplaceReplica(replica_id, reason))

    def touch(self, program: str) -> None:
        """The time has come to look at a program again."""
        self._touched[program] = self.pools[program]

    def form_batches(self, now_ns: int) -> None:
        """Gives every program that something happened to as many batches as its replicas take."""
        while self._touched:
            _, pool = self._touched.popitem()
            while len(pool.queue) and self._form_batch(pool, now_ns):
                pass

    def _form_batch(self, pool: Pool, now_ns: int) -> bool:
        """Forms one batch; False if that has to wait.

        Work-conserving: an idle replica takes what is there. A replica that runs a batch is sent the next when that would
        arrive as the running one ends; before that the batch can still grow, unless it is full.
        """
        size = max_size = pool.program.options.max_batch_size
        replica = None
        if pool.num_idle:
            share = -(-len(pool.queue) // pool.num_idle)
            size = min(max_size, max(share, pool.latency.efficient_size()))
        else:
            replica = pool.soonest_prefetch()
            if replica is None:
                return False
            if replica.prefetch_ns > now_ns and pool.queue.count_next(max_size) < max_size:
                self._wake_at(pool, replica.prefetch_ns)
                return False
        calls, is_retry = pool.queue.take(size)
        if not calls:
            return False
        if is_retry:
            reason = FormReason.RETRY
        elif len(calls) == max_size:
            reason = FormReason.FULL
        else:
            reason = FormReason.SHARED if len(calls) == size and pool.num_idle > 1 else FormReason.QUEUE_EMPTIED
        self._dispatch(pool, replica or pool.place(calls), calls, reason, now_ns)
        return True

    def _dispatch(self, pool: Pool, replica: Replica, calls: list[Call], reason: FormReason, now_ns: int) -> None:
        batch = Batch(self._next_batch_id, calls, replica, reason, now_ns)
        self._next_batch_id += 1
        for call in calls:
            call.state = CallState.RUNNING
        self.batches[batch.batch_id] = batch
        replica.batches[batch.batch_id] = batch
        if len(replica.batches) == 1:
            self._start(batch, now_ns)
        pool.set_busy(replica, self._prefetch_ns(replica))
        operands = [call.operands for call in calls]
        self._emit(DispatchBatch(replica.replica_id, batch.batch_id, pool.program, operands, calls[0].statics, reason))

    def _start(self, batch: Batch, now_ns: int) -> None:
        """A batch is the first of its replica now."""
        batch.started_ns = now_ns
        timeout_s = batch.replica.pool.program.options.execution_timeout_s
        batch.timeout = self._timers.set(now_ns + int(timeout_s * NS_PER_S), TimerKind.EXECUTION, batch.batch_id)

    def _prefetch_ns(self, replica: Replica) -> int:
        """When to send the next batch: when the running one is expected to end, by its start and T(n)."""
        running = replica.running
        if running is None or running.started_ns is None:
            return NEVER_NS
        expected_s = replica.latency.predict(len(running.calls))
        if expected_s is None:
            return NEVER_NS - 1  # unknown: only a full batch goes ahead
        return running.started_ns + int(expected_s * self._config.prefetch_ratio * NS_PER_S)

    def _take_back(self, replica_id: str, batch_id: int, now_ns: int) -> Batch | None:
        """A batch has ended on its replica; None if the engine had given it up."""
        replica = self.replicas.get(replica_id)
        batch = self.batches.get(batch_id)
        if replica is None or batch is None or batch.replica is not replica:
            return None
        del replica.batches[batch_id]
        self._forget(batch)
        pool = replica.pool
        running = replica.running
        if running is None:
            pool.set_idle(replica)
        else:
            if running.started_ns is None:
                self._start(running, now_ns)
            pool.set_busy(replica, self._prefetch_ns(replica))
        self._touched[pool.program.name] = pool
        return batch

    def _forget(self, batch: Batch) -> None:
        del self.batches[batch.batch_id]
        if batch.timeout is not None:
            self._timers.cancel(batch.timeout)

    def _wake_at(self, pool: Pool, at_ns: int) -> None:
        if at_ns >= NEVER_NS - 1:
            return
        timer = pool.prefetch_timer
        if timer is not None and not timer.is_cancelled:
            if timer.at_ns <= at_ns:
                return
            self._timers.cancel(timer)
        pool.prefetch_timer = self._timers.set(at_ns, TimerKind.PREFETCH, pool.program.name)

    def _drain_s(self, pool: Pool) -> float:
        """About how long the queue will take, in seconds, at least 0.1."""
        size = pool.program.options.max_batch_size
        batch_s = pool.latency.predict(size) or 1.0
        return max(0.1, round(batch_s * len(pool.queue) / size / max(1, len(pool.replicas)), 3))
