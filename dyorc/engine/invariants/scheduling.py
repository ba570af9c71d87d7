"""Where calls are: queues, batches, replicas, timers."""

from collections import Counter

from dyorc.authoring.exact_values import statics_key
from dyorc.engine.engine import Engine
from dyorc.engine.invariants.in_flight import (
    InvariantError,
    all_calls,
    batches,
    placed_calls,
    pools,
    scheduler_of,
)
from dyorc.engine.model.futures import PENDING
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.scheduling.holding import waits_for_end
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import NEVER_NS, Replica
from dyorc.engine.timers import TimerKind


def _queued(pool: ReplicaPool) -> list[Call]:
    return [call for queue in pool.queues() for call in queue]


def _guessed(pool: ReplicaPool) -> list[Call]:
    return [call for guesses in pool.queues_of_guesses() for call in guesses]


def calls_are_in_one_place(engine: Engine) -> None:
    """A waiting or settled call is nowhere, a queued one once in its program's queue, and a running one in one batch."""
    guessed = Counter(call for pool in pools(engine) for call in _guessed(pool))
    queued = Counter(call for pool in pools(engine) for call in (*_queued(pool), *pool.suspects))
    running = Counter(call for batch in batches(engine) for call in batch.calls)
    for call in all_calls(engine):
        where = (guessed[call], queued[call], running[call])
        expected = {
            CallState.GUESSED: (1, 0, 0),
            CallState.QUEUED: (0, 1, 0),
            CallState.RUNNING: (0, 0, 1),
            CallState.WITHDRAWN: (0, 0, where[2]),
            CallState.SETTLED: (0, 0, where[2] if call.parts is not None else 0),  # it may have failed before it could be ended
        }
        if where != expected.get(call.state, (0, 0, 0)):
            raise InvariantError(
                f"{call!r} is {call.state.name}, but {where[0]} times among the guesses, {where[1]} times queued, "
                f"{where[2]} times in a batch"
            )
    for pool in pools(engine):
        for call in (*_queued(pool), *pool.suspects, *_guessed(pool)):
            if call.callee.name != pool.program.name:
                raise InvariantError(f"{call!r} is in the queue of {pool.program.name!r}")


def pending_futures_have_unfinished_calls(engine: Engine) -> None:
    """A call that has not ended has no value yet; one that has ended has a value or an error."""
    for call in all_calls(engine):
        is_pending = call.future.state is PENDING
        if call.state is not CallState.WITHDRAWN and is_pending != (call.state is not CallState.SETTLED):
            raise InvariantError(f"{call!r} is {call.state.name}, but its future is {call.future.state.name}")


def calls_belong_to_requests(engine: Engine) -> None:
    """Nothing is queued or runs for a request that was forgotten, except calls that were withdrawn while they ran."""
    for where, call in placed_calls(engine):
        request = call.segment.task.request
        is_kept = engine.tasks.requests.get(request.request_id) is request
        is_over = call.state is CallState.WITHDRAWN or (call.state is CallState.SETTLED and call.parts is not None)
        if not is_over and not is_kept:
            raise InvariantError(f"{call!r} is {call.state.name} {where} for a request that was forgotten")


def queue_sizes_agree(engine: Engine) -> None:
    """A queue counts what it holds."""
    for pool in pools(engine):
        for queue in (*pool.queues(), *pool.queues_of_guesses()):
            num_held = sum(1 for _ in queue)
            if len(queue) != num_held:
                raise InvariantError(f"a queue of {pool.program.name!r} counts {len(queue)}, holds {num_held}")


def batches_are_uniform(engine: Engine) -> None:
    """A batch holds 1 to `max_batch_size` calls of one program, or of its twins in other versions, with equal batch keys and
    static parameters, and of at most `max_batch_cost`, unless it holds one call."""
    for batch in batches(engine):
        program = batch.replica.pool.program
        if not 1 <= len(batch.calls) <= program.options.max_batch_size:
            raise InvariantError(f"batch {batch.batch_id} of {program.name!r} has {len(batch.calls)} calls")
        max_cost = program.options.max_batch_cost
        if max_cost is not None and len(batch.calls) > 1 and sum(call.cost for call in batch.calls) > max_cost * (1 + 1e-9):
            raise InvariantError(f"batch {batch.batch_id} of {program.name!r} costs {batch.cost}, at most {max_cost} is allowed")
        if len({(call.callee.name, call.batch_key, statics_key(call.statics)) for call in batch.calls}) != 1:
            raise InvariantError(f"batch {batch.batch_id} of {program.name!r} mixes calls that may not share a batch")


def batches_belong_to_replicas(engine: Engine) -> None:
    """A batch in flight is held by one known replica, which holds at most `max_in_flight_batches` and has started the first."""
    scheduler = scheduler_of(engine)
    held = Counter(batch_id for replica in scheduler.replicas.values() for batch_id in replica.batches)
    if held != Counter(scheduler.batches.keys()):
        raise InvariantError(f"replicas hold the batches {sorted(held.elements())}, in flight are {sorted(scheduler.batches)}")
    for replica in scheduler.replicas.values():
        if (replica.pool.draining | replica.pool.replicas).get(replica.replica_id) is not replica:
            raise InvariantError(f"replica {replica.replica_id!r} is not in the pool of {replica.pool.program.name!r}")
        pool = replica.pool
        limit = engine.config.max_in_flight_batches if pool.ongoing is None else pool.max_ongoing
        if len(replica.batches) > limit:
            raise InvariantError(f"replica {replica.replica_id!r} holds {len(replica.batches)} batches")
        for position, batch in enumerate(replica.batches.values()):
            if (batch.started_ns is not None) != (position == 0 or pool.ongoing is not None):
                raise InvariantError(f"batch {batch.batch_id} is number {position} of its replica, {batch.started_ns=}")
    if sum(len(pool.replicas) + len(pool.draining) for pool in scheduler.pools.values()) != len(scheduler.replicas):
        raise InvariantError("a pool has a replica that the scheduler does not know")


def no_more_replicas_than_wanted(engine: Engine) -> None:
    """At most as many replicas take batches as are wanted. More drain only if that many do or they are about to end, and
    as long as they hold batches.
    """
    for pool in pools(engine):
        num_wanted = len(pool.replicas) if pool.target.num_warm is None else pool.target.num_warm
        num_draining = sum(not replica.is_leaving for replica in pool.draining.values())
        num_kept = sum(replica.is_surplus for replica in pool.replicas.values())
        if len(pool.replicas) - num_kept > num_wanted or (num_draining and len(pool.replicas) < num_wanted):
            name = pool.program.name
            raise InvariantError(f"{name!r} is to have {num_wanted} replicas, has {len(pool.replicas)}, and {num_draining} drain")
        for replica in pool.draining.values():
            if not replica.batches or replica.prefetch_ns != NEVER_NS:
                raise InvariantError(f"replica {replica.replica_id!r} drains, holds {len(replica.batches)} batches, takes more")


def idle_bookkeeping_agrees(engine: Engine) -> None:
    """Replicas without batches, or with room beside those that run, are listed as idle, each under its own node; not those that
    run a suspect, or are kept free for one."""
    for pool in pools(engine):
        listed = {(node, name) for node, here in pool.idle.items() for name in here}
        limit = 1 if pool.ongoing is None else pool.max_ongoing
        actual = {(replica.node, name) for name, replica in pool.replicas.items() if _has_room(replica, limit)}
        if pool.ongoing is not None:
            alone = [replica for replica in pool.replicas.values() if replica is pool.reserved or _runs_suspect(replica)]
            actual -= {(replica.node, replica.replica_id) for replica in alone}
        if listed != actual or pool.num_idle != len(actual):
            raise InvariantError(f"{pool.program.name!r}: idle are {actual}, listed {listed}, counted {pool.num_idle}")


def _runs_suspect(replica: Replica) -> bool:
    return any(call.is_suspect for batch in replica.batches.values() for call in batch.calls)


def _has_room(replica: Replica, limit: int) -> bool:
    is_blocked = replica.process is not None and replica.pool.ongoing is None and not replica.process.is_free
    return len(replica.batches) < limit and not is_blocked


def idle_replicas_leave_no_work(engine: Engine) -> None:
    """No call waits while a replica of its program is idle, or has room and is due for the next batch.

    Only the last replica that is idle or due may be held, and not for ever; and the next batch of a loop may wait until the
    running one is back.
    """
    for pool in pools(engine):
        for here in pool.idle.values():
            for replica in here.values():
                if replica.process is not None and (bound := pool.bound.get(replica.process.name)) and bound.queue.size:
                    raise InvariantError(f"{bound.queue.size} calls wait for {replica.process.name!r}, which is free")
        if not len(pool.queue) or pool.has_process:
            continue
        if pool.num_idle <= 1 and pool.held_until_ns > engine.now_ns:
            if pool.timer is None or pool.timer.is_cancelled or pool.timer.at_ns > pool.held_until_ns:
                raise InvariantError(f"calls of {pool.program.name!r} are held, but no timer ends that")
            continue
        if pool.num_idle:
            raise InvariantError(f"{len(pool.queue)} calls of {pool.program.name!r} wait while {pool.num_idle} replicas are idle")
        if _waits_for_end(engine, pool):
            continue
        for replica in pool.replicas.values():
            if replica.prefetch_ns <= engine.now_ns:
                raise InvariantError(f"calls of {pool.program.name!r} wait, {replica.replica_id!r} is due for a batch")


def cores_are_counted(engine: Engine) -> None:
    """Each processor counts as busy as many replicas as hold batches on it."""
    busy = Counter(replica.processor for replica in scheduler_of(engine).replicas.values() if replica.batches)
    for node, processor in scheduler_of(engine).processors.items():
        if len(processor.busy) != busy[processor]:
            raise InvariantError(f"{busy[processor]} replicas run on the cores of {node!r}, counted are {len(processor.busy)}")


def prefetches_have_timers(engine: Engine) -> None:
    """While calls wait for a replica to be due for its next batch, a timer is set for then; not if they wait for its end."""
    for pool in pools(engine):
        due_ns = min((replica.prefetch_ns for replica in pool.replicas.values()), default=NEVER_NS)
        if not len(pool.queue) or due_ns >= NEVER_NS - 1:
            continue
        if _waits_for_end(engine, pool):
            continue
        if pool.held_until_ns > engine.now_ns:
            due_ns = max(due_ns, pool.held_until_ns)
        timer = pool.timer
        if timer is None or timer.is_cancelled or timer.at_ns > due_ns:
            raise InvariantError(f"calls of {pool.program.name!r} wait for {due_ns} ns, but no timer is set for then")


def requests_have_deadlines(engine: Engine) -> None:
    """Each unanswered request has a timer for its deadline, which lies ahead; nothing else has."""
    live = {timer for timer in engine.timers if timer.kind is TimerKind.DEADLINE}
    unanswered = {request_id for request_id, request in engine.tasks.requests.items() if not request.is_answered}
    if set(engine.tasks.answering.deadlines) != unanswered or set(engine.tasks.answering.deadlines.values()) != live:
        raise InvariantError(f"unanswered are {sorted(unanswered)}, deadlines have {sorted(engine.tasks.answering.deadlines)}")
    for timer in live:
        if timer.at_ns <= engine.now_ns:
            raise InvariantError(f"the deadline of request {timer.key} has passed, it was not failed")


def started_batches_have_timers(engine: Engine) -> None:
    """Each batch that runs has a timer that declares its replica hung, unless it may not yield before its parts are read."""
    live = {timer for timer in engine.timers if timer.kind is TimerKind.EXECUTION}
    running = [batch for batch in batches(engine) if batch.started_ns is not None]
    timed = {batch.timeout for batch in running if batch.timeout is not None or batch.ongoing is None or batch.ongoing.is_timed}
    if live != timed:
        raise InvariantError(
            f"in flight are {sorted(scheduler_of(engine).batches)}, timers are set for {sorted(str(t.key) for t in live)}"
        )


def _waits_for_end(engine: Engine, pool: ReplicaPool) -> bool:
    """Whether the calls of a program wait until the batch is back whose replica is due first, since more calls follow from it."""
    replica = None if pool.num_idle or not engine.config.hold else pool.soonest_prefetch()
    running = None if replica is None else replica.running
    first = pool.queue.peek()
    size = pool.program.options.max_batch_size if first is None else pool.max_size(first.cost)
    num_ready = pool.queue.count_next(size)
    return running is not None and num_ready < size and waits_for_end(pool, running, num_ready)
