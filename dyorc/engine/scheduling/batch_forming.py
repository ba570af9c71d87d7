"""Which calls form a program's next batch, on which replica, and whether it waits for more."""

import math
from collections.abc import Mapping

from dyorc.engine.actions import FormReason
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.model.program_call import Call
from dyorc.engine.scheduling.holding import held_until_ns, waits_for_end
from dyorc.engine.scheduling.lanes import Lanes
from dyorc.engine.scheduling.queues import CallQueue
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import NEVER_NS, Batch, FormedBatch, Replica
from dyorc.engine.scheduling.speculation_policy import SpeculationPolicy
from dyorc.engine.timers import TimerKind
from dyorc.engine.turn import CallLate
from dyorc.errors import DeadlineError


class BatchFormer:
    """Forms batches.

    Work-conserving: an idle replica takes the calls that wait, unless holding the last idle one pays. A busy replica is sent its
    next batch so that it arrives as the running one ends; until then the batch can still grow, unless it is full. In a loop it
    waits for the running one's end, if that pays. Guesses fill up batches of certain calls, or form their own if no certain call
    waits and a replica and a core are idle. So no guess begins while a certain call of its program waits.

    Calls that share a batch have equal shapes, so they cost the same, and a limit on the cost of a batch is one on its calls.

    Calls that would end too late are left out and end as `CallLate`.

    Args:
        batches: In flight.

    Source: early drop (Shen et al.: "Nexus: a GPU cluster engine for accelerating DNN-based video analysis", SOSP 2019).
    """

    def __init__(self, context: EngineContext, bets: SpeculationPolicy, batches: Mapping[int, Batch]) -> None:
        self._turn = context.turn
        self._timers = context.timers
        self._can_hold = context.config.hold
        self._can_drop = context.config.early_drop
        self._policy = bets
        self._batches = batches

    def form_certain(self, pool: ReplicaPool) -> FormedBatch | None:
        """Returns the next batch of a program; None if no certain call waits, no replica takes one, or it is held."""
        if not pool.queue.size:
            return None
        now_ns = self._turn.now_ns
        size = max_size = pool.program.options.max_batch_size
        num_waiting, cost = pool.queue.size, 1.0
        if pool.max_cost is not None:
            num_waiting, cost = by_cost(pool.queue)
            size = max_size = pool.max_size(cost)
        replica = None
        start_ns = now_ns
        if pool.num_idle:
            size = fair_size(pool, num_waiting, cost, max_size)
        else:
            replica = pool.soonest_prefetch()
            if replica is None:
                return None
            num_ready, running = pool.queue.count_next(max_size), replica.running
            if num_ready < max_size:
                if self._can_hold and running is not None and waits_for_end(pool, running, num_ready):
                    return None
                if replica.prefetch_ns > now_ns:
                    self._wake_at(pool, replica.prefetch_ns)
                    return None
            start_ns = max(now_ns, replica.expected_free_ns or now_ns)
        held_until_ns = pool.held_until_ns
        if self._hold(pool, replica, now_ns):
            return None
        calls, is_retry = self.take(pool, pool.queue, replica, size, cost, now_ns)
        if not calls:
            return None
        if pool.max_cost is not None:
            max_size = pool.max_size(calls[0].cost)
        if is_retry:
            reason = FormReason.RETRY
        elif len(calls) == max_size:
            reason = reason_when_full(pool, max_size)
        elif held_until_ns:
            reason = FormReason.HELD
        else:
            reason = FormReason.SHARED if len(calls) == size and pool.num_idle > 1 else FormReason.QUEUE_EMPTIED
        if not is_retry and pool.guesses.size and not pool.queue.size:  # what is left waits for this batch to end
            self._policy.fill(pool, pool.guesses, replica, calls, max_size, start_ns, now_ns)
        if held_until_ns:
            _end_hold(pool, len(calls), min(held_until_ns, now_ns))
        return FormedBatch(replica or pool.nearest_idle(calls), calls, reason)

    def take(
        self, pool: ReplicaPool, queue: CallQueue, replica: Replica | None, size: int, cost: float, now_ns: int
    ) -> tuple[list[Call], bool]:
        """Takes the next calls of a queue that can end before their deadlines; the others end as `CallLate`.

        A call is checked against the time of a batch as large as this one would be, not of a smaller one made for its sake: under
        overload that would make all batches small, and more calls late.
        """
        while queue.size:
            end_ns = pool.earliest_end_ns(replica, queue.count_next(size) * cost, now_ns) if self._can_drop else 0
            calls, is_retry, late = queue.take(size, end_ns)
            for call in late:
                call.wait()
                self._turn.ended.append(CallLate(call, _too_late(call, end_ns)))
            if calls or not late:
                return calls, is_retry
            if pool.max_cost is not None:  # the next calls may be of another cost
                _, cost = by_cost(queue)
                size = min(size, pool.max_size(cost))
        return [], False

    def form_guesses(self, pool: ReplicaPool) -> FormedBatch | None:
        """Returns a batch of guesses alone; None without guesses, if a certain call waits, nothing is idle, or it does not pay.

        Call it once all programs have their batches of certain calls: a core that is free then is not needed.
        """
        if not pool.guesses.size or pool.queue.size or not pool.num_idle:
            return None
        now_ns = self._turn.now_ns
        replica = pool.idle_with_core()
        held_until_ns = pool.held_until_ns
        if replica is None or self._hold(pool, None, now_ns):
            return None
        max_size, num_waiting, cost = pool.program.options.max_batch_size, pool.guesses.size, 1.0
        if pool.max_cost is not None:
            num_waiting, cost = by_cost(pool.guesses)
            max_size = pool.max_size(cost)
        calls = self._policy.form_batch(pool, pool.guesses, replica, fair_size(pool, num_waiting, cost, max_size), now_ns)
        if not calls:
            return None
        if held_until_ns:
            _end_hold(pool, len(calls), min(held_until_ns, now_ns))
        nearest = pool.nearest_idle(calls)
        return FormedBatch(nearest if nearest.has_core else replica, calls, FormReason.GUESSED)

    def _hold(self, pool: ReplicaPool, replica: Replica | None, now_ns: int) -> bool:
        """Returns whether the only replica that is idle, or is about to be (`replica`), waits for more calls."""
        was_held, pool.held_until_ns = pool.held_until_ns > 0, 0
        if not self._can_hold or pool.num_idle > 1 or (replica is None and len(pool.replicas) == 1 and not pool.foreseen):
            return False  # no other replica is about to be free, and no call is expected
        first = pool.queue.peek() if pool.queue.size else pool.guesses.peek()
        if first is None:
            return False  # the remaining calls are retried alone
        num_ready = pool.queue.size + pool.guesses.size
        deadline_ns = first.context.order.deadline_ns
        since_ns = pool.held_since_ns if was_held else now_ns
        until_ns = held_until_ns(pool, replica, num_ready, first.cost, deadline_ns, self._batches, now_ns, since_ns)
        if until_ns > now_ns and pool.queue.size:
            # The first is not always the most pressing; and there are less than make a full batch, or it would not be held.
            deadline_ns = min(call.context.order.deadline_ns for call in pool.queue)
            until_ns = held_until_ns(pool, replica, num_ready, first.cost, deadline_ns, self._batches, now_ns, since_ns)
        if until_ns <= now_ns:
            return False
        if not was_held:
            pool.held_since_ns, pool.num_when_held = now_ns, num_ready
        pool.held_until_ns = until_ns
        self._wake_at(pool, until_ns)
        return True

    def _wake_at(self, pool: ReplicaPool, at_ns: int) -> None:
        if at_ns >= NEVER_NS - 1:
            return
        timer = pool.timer
        if timer is not None and not timer.is_cancelled:
            if timer.at_ns <= at_ns:
                return
            self._timers.cancel(timer)
        pool.timer = self._timers.set(at_ns, TimerKind.POOL, pool.program.name)


def by_cost(waiting: CallQueue | Lanes) -> tuple[int, float]:
    """Returns how many calls like the first would cost as much as all that wait, and what the first costs."""
    first = waiting.peek()
    if first is None or not first.cost:
        return waiting.size, 0.0 if first is not None else 1.0
    return max(1, math.ceil(waiting.total_cost() / first.cost)), first.cost


def fair_size(pool: ReplicaPool, num_calls: int, cost: float, max_size: int) -> int:
    """Returns how many calls one of the idle replicas takes, so that all have work and no batch is wastefully small.

    Args:
        cost: What each of them costs.
        max_size: How many may be in one batch.
    """
    share = -(-num_calls // pool.num_idle)
    return min(max_size, max(share, pool.latency.efficient_size(cost)))


def reason_when_full(pool: ReplicaPool, max_size: int) -> FormReason:
    """Returns why a batch of the largest size that its pool allows now was formed."""
    options = pool.program.options
    if pool.program.max_ongoing > 1:
        return FormReason.SIDE_BY_SIDE
    if options.max_batch_size == 1:
        return FormReason.ALONE
    return FormReason.FULL if max_size == options.max_batch_size else FormReason.COSTS_ENOUGH


def _end_hold(pool: ReplicaPool, size: int, now_ns: int) -> None:
    """Counts a batch that was held and is sent."""
    pool.record.holds.add(size - pool.num_when_held, now_ns - pool.held_since_ns)


def _too_late(call: Call, end_ns: int) -> DeadlineError:
    behind_s = (end_ns - call.context.order.deadline_ns) / 1e9
    return DeadlineError(
        f"the request's deadline cannot be met: a call of program {call.callee.name!r} would be done "
        f"{behind_s:.3f} s after it at the earliest, so it was not run"
    )
