"""Handles calls whose batch failed: they are queued again, wait for lost inputs, or fail.

Guesses do not run again before they are certain, and never together with certain calls, which must not fail with them.
"""

from collections.abc import Iterator, Mapping

from dyorc.engine.actions import FormReason
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import ReplicaLeft, SuspectsReported
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.scheduling.failed_streams import continued
from dyorc.engine.scheduling.lanes import Lanes
from dyorc.engine.scheduling.queues import CallQueue
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Batch
from dyorc.engine.scheduling.suspects import Refusals, SuspectQueue
from dyorc.engine.timers import TimerKind
from dyorc.engine.turn import CallDeferred, CallFailed, CallUnready, Turn
from dyorc.errors import CapacityError, DyOrcError, EffectLostError, ReplicaLostError


def fail(turn: Turn, pool: ReplicaPool, call: Call, error: DyOrcError) -> None:
    """Counts a call that cannot run, and passes the error to its task."""
    pool.record.count_failure(error.code, turn.now_ns - call.submitted_ns, turn.now_ns)
    turn.ended.append(CallFailed(call, error))


class RetryPolicy:
    """Decides how each call of a failed batch goes on.

    Args:
        refusals: Inputs that are no longer run.
    """

    def __init__(self, context: EngineContext, refusals: Refusals) -> None:
        self._turn = context.turn
        self._timers = context.timers
        self._leases = context.leases
        self._max_attempts = context.config.max_attempts
        self._max_deaths = context.config.max_deaths
        self._refusals = refusals

    def lacks_inputs(self, call: Call) -> bool:
        """Returns whether any input of a call was lost."""
        return not self._leases.are_there(call.blocks)

    def isolate(self, call: Call, pool: ReplicaPool) -> None:
        """Queues a call that may have crashed its replica, to run alone."""
        until_ns = pool.suspects.add(call, self._turn.now_ns)
        self._timers.set(until_ns, TimerKind.POOL, pool.program.name)

    def replica_lost(self, batch: Batch, event: ReplicaLeft, num_running: int) -> None:
        """Handles a batch whose replica is gone.

        Only a batch that was running can have been the cause. A call that may have been the cause is tried alone next, and
        refused if that costs another replica; replicas that equal calls lost side by side count as one.

        Args:
            num_running: How many batches the replica was running.
        """
        pool, process = batch.replica.pool, batch.replica.process
        name = pool.program.name
        was_running = batch.started_ns is not None and (process is None or not process.has_hung)
        is_alone = was_running and len(batch.calls) == 1 and (num_running == 1 or batch.calls[0].is_suspect)
        for call in batch.calls:
            if was_running:
                call.num_attempts += 1
                call.is_suspect |= is_alone or event.is_crash or call.num_attempts > 1
        max_deaths = self._max_deaths + event.was_killed
        for call in self._certain(batch):
            call.order = call.context.order  # it may have been a guess when it was sent, with another order
            if not pool.program.options.is_repeatable:
                text = f"the replica of program {name!r} was lost ({event.reason}); the program is not declared idempotent, "
                fail(self._turn, pool, call, EffectLostError(f"{text}so it is not run again"))
            elif (known := self._refusals.check(call)) is not None:
                fail(self._turn, pool, call, known)
            elif is_alone and self._refusals.count_loss(call, batch.dispatched_ns) >= max_deaths:
                fail(self._turn, pool, call, self._refusals.add(call, event.reason))
                self._refuse_equal(pool)
            elif self.lacks_inputs(call):
                self._turn.ended.append(CallUnready(call))
            elif call.is_suspect:
                self.isolate(call, pool)
            else:
                pool.queue_of(call).add(call)

    def isolate_suspects(self, event: SuspectsReported, pools: Mapping[str, ReplicaPool]) -> None:
        """Learns which inputs may crash this process, and isolates waiting calls with them. Cost: looks at all waiting calls."""
        self._refusals.add_reported(event)
        for name, pool in pools.items():
            self._refuse_equal(pool)
            for queue in pool.queues():
                for call in queue.take_out(self._refusals.is_suspect):
                    call.wait()
                    call.is_suspect = True
                    self.isolate(call, pool)
            self._turn.touched[name] = None

    def is_another_tried(self, pool: ReplicaPool, pools: Mapping[str, ReplicaPool]) -> bool:
        """Returns whether a suspect call of another program is at work in the process that a suspect of this one could crash:
        after a crash, the cause would be unknown."""
        return self._refusals.are_shared and any(other.runs_suspect for other in pools.values() if other is not pool)

    def touch_suspects(self, pools: Mapping[str, ReplicaPool]) -> None:
        """Considers the suspects of all programs, because one has come back that they may have waited for."""
        if self._refusals.are_shared:
            self._turn.touched.update((name, None) for name, pool in pools.items() if pool.suspects.waiting)

    def clear_suspect(self, call: Call, pool: ReplicaPool) -> None:
        """Clears a suspect call that has run, and frees equal calls that never lost a replica themselves.

        Calls count as equal if their requests are: while others of this request wait to be tried, one of them may be the cause.
        If its inputs ended another process, the cause may also be a call that the request has yet to make: then they are cleared
        when it has ended (`clear_requests`).
        """
        if any(other.context is call.context for other in pool.suspects.waiting):
            return
        if self._refusals.is_suspect(call):
            if pool.program.name not in call.context.tried:
                call.context.tried = (*call.context.tried, pool.program.name)
            return
        self._refusals.clear(call)
        self._free_cleared(pool)

    def clear_requests(self, pools: Mapping[str, ReplicaPool]) -> None:
        """Clears the inputs of requests that have ended well, and frees equal calls."""
        harmless, self._turn.harmless = self._turn.harmless, []
        for context in harmless:
            self._refusals.clear_request(context)
            for name in context.tried:
                if (pool := pools.get(name)) is not None and pool.suspects.waiting:
                    self._free_cleared(pool)
                    self._turn.touched[name] = None

    def _free_cleared(self, pool: ReplicaPool) -> None:
        for other in pool.suspects.take_out(lambda call: not call.num_attempts and not self._refusals.is_suspect(call)):
            other.wait()
            other.is_suspect = False
            pool.queue_of(other).add(other)

    def _refuse_equal(self, pool: ReplicaPool) -> None:
        """Fails the waiting calls whose inputs are refused now. Cost: looks at all waiting calls."""
        waiting: list[CallQueue | SuspectQueue] = [*pool.queues(), pool.suspects]
        for queue in waiting:
            for call in queue.take_out(lambda call: self._refusals.check(call) is not None):
                call.wait()
                if (error := self._refusals.check(call)) is not None:
                    fail(self._turn, pool, call, error)

    def dequeue_unreadable(self, pools: Mapping[str, ReplicaPool]) -> None:
        """Takes calls that need lost tensors out of their queues. Cost: visits all waiting calls."""
        for pool in pools.values():
            waiting: list[CallQueue | SuspectQueue | Lanes] = [*pool.queues(), pool.suspects, *pool.queues_of_guesses()]
            for queue in waiting:
                for call in queue.take_out(self.lacks_inputs):
                    call.wait()
                    self._turn.ended.append(CallUnready(call))

    def inputs_lost(self, batch: Batch) -> None:
        """Handles a batch that did not run because its inputs could not be read. Calls whose inputs are lost wait until they are
        restored. If no loss is known, the calls are tried again, a few times."""
        pool = batch.replica.pool
        has_begun = batch.ongoing is not None and not pool.program.options.is_repeatable
        is_unknown = not any(self.lacks_inputs(call) for call in batch.calls)
        for call in batch.calls:
            if call.state is not CallState.RUNNING:
                continue
            if has_begun:
                text = f"a stream that program {pool.program.name!r} reads was lost while it ran; the program is not declared "
                fail(self._turn, pool, call, EffectLostError(f"{text}idempotent, so it is not run again"))
                continue
            call.num_losses += is_unknown
            if call.num_losses >= self._max_attempts and not call.is_guess:
                text = f"the inputs of a call of program {pool.program.name!r} could not be read in {call.num_losses} attempts"
                fail(self._turn, pool, call, ReplicaLostError(text))
            else:
                self._turn.ended.append(CallUnready(call))

    def out_of_memory(self, batch: Batch, error: CapacityError) -> None:
        """Halves a batch whose results had no room, and tries again, a few times: smaller ones need less.

        Its replica does nothing else while it waits for room, so the parts share what the batch has left of its wait.
        """
        left = self._room_budget(batch) - self.room_share(batch)
        for call in batch.calls:
            call.num_losses += 1
            call.room_share = left / len(batch.calls)
        if max(call.num_losses for call in batch.calls) < self._max_attempts:
            self.halve_and_retry(batch, error)
        else:
            self._fail_all(batch, error)

    def room_share(self, batch: Batch) -> float:
        """Returns for which part of one wait the results of a batch may wait; its halves, and theirs, share the same budget.

        Requests that have waited in vain do not wait again: a fan-out would hold a replica up with each of its batches.
        """
        for call in batch.calls:
            if not call.context.lacks_room:
                break
        else:
            return 0.0
        return self._room_budget(batch) / self._max_tries(batch)

    @staticmethod
    def _room_budget(batch: Batch) -> float:
        """Returns which part of one wait a batch has, together with all smaller batches that it may be split into."""
        if batch.reason is not FormReason.RETRY:
            return 1.0
        return sum([call.room_share for call in batch.calls]) or 1.0

    def _max_tries(self, batch: Batch) -> int:
        """Returns how many times the calls of a batch may look for room, the batch itself included."""
        if not batch.replica.pool.program.options.is_repeatable:
            return 1
        num_losses = max([call.num_losses for call in batch.calls]) if batch.reason is FormReason.RETRY else 0
        return max(1, min(self._max_attempts - num_losses, 1 + (len(batch.calls) - 1).bit_length()))

    def halve_and_retry(self, batch: Batch, error: DyOrcError) -> None:
        """Retries a failed batch as two halves, so that one bad input fails alone. A batch of one call fails."""
        pool = batch.replica.pool
        if len(batch.calls) == 1 or not pool.program.options.is_repeatable:
            self._fail_all(batch, error)
            return
        calls = list(self._certain(batch))  # even if only one is left: the call that failed may be withdrawn by now
        middle = len(calls) // 2
        for part in (calls[:middle], calls[middle:]):
            self._retry(part, pool)

    def _fail_all(self, batch: Batch, error: DyOrcError) -> None:
        """Fails the calls of a batch, each with an error of its own: errors tell apart which failures were reported."""
        lacks_room = isinstance(error, CapacityError)
        for number, call in enumerate(self._certain(batch)):
            call.context.lacks_room |= lacks_room
            fail(self._turn, batch.replica.pool, call, continued(error, "") if number else error)

    def _retry(self, calls: list[Call], pool: ReplicaPool) -> None:
        """Queues calls together again, except those whose inputs were lost meanwhile."""
        part = [call for call in calls if not self.lacks_inputs(call)]
        self._turn.ended.extend([CallUnready(call) for call in calls if call not in part])
        if part:
            pool.queue_of(part[0]).add_retry(part)

    def _certain(self, batch: Batch) -> Iterator[Call]:
        """Yields the calls of a batch that are certain, and defers the guesses."""
        for call in batch.calls:
            if call.state is not CallState.RUNNING:
                continue
            if call.is_guess:
                self._turn.ended.append(CallDeferred(call))
            else:
                yield call
