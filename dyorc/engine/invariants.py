"""What is true of an engine after every event, one function per promise.

Tests call `check_all` after each `Engine.handle`; so may a simulator. A check walks over everything in flight.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from dyorc.engine.engine import Engine
from dyorc.engine.model.cells import Call, CallState, Cell, CellState, Waiter
from dyorc.engine.model.journal import BranchPoint, Entry, Part
from dyorc.engine.model.requests import Request, Task, TaskState, is_effect, is_unfinished
from dyorc.engine.scheduling.replicas import NEVER_NS
from dyorc.engine.tasks.recovery import Restoration, RestorationWaiter
from dyorc.engine.timers import TimerKind
from dyorc.tensor import blocks_of


class InvariantError(AssertionError):
    """The engine's state contradicts itself: a bug of ours. The text names the object."""


def check_all(engine: Engine) -> None:
    """Checks every invariant.

    Raises:
        InvariantError: If one does not hold.
    """
    for check in CHECKS:
        check(engine)


# Calls


def calls_are_in_one_place(engine: Engine) -> None:
    """A waiting call is nowhere, a queued one once in its program's queue, a running one in one batch, a settled one nowhere."""
    guessed = Counter(call for pool in engine.scheduler.pools.values() for call in pool.guesses)
    queued = Counter(call for pool in engine.scheduler.pools.values() for call in pool.queue)
    running = Counter(call for batch in engine.scheduler.batches.values() for call in batch.calls)
    for request in engine.tasks.requests.values():
        for call in _calls(request):
            where = (guessed[call], queued[call], running[call])
            expected = {
                CallState.GUESSED: (1, 0, 0),
                CallState.QUEUED: (0, 1, 0),
                CallState.RUNNING: (0, 0, 1),
                CallState.WITHDRAWN: (0, 0, where[2]),
            }
            if where != expected.get(call.state, (0, 0, 0)):
                raise InvariantError(
                    f"{call!r} is {call.state.name}, but {where[0]} times among the guesses, {where[1]} times queued, "
                    f"{where[2]} times in a batch"
                )
    for pool in engine.scheduler.pools.values():
        for call in (*pool.queue, *pool.guesses):
            if call.callee is not pool.program:
                raise InvariantError(f"{call!r} is in the queue of {pool.program.name!r}")


def pending_cells_have_unfinished_calls(engine: Engine) -> None:
    """A call that has not ended has no value yet; one that has ended has a value or an error."""
    for request in engine.tasks.requests.values():
        for call in _calls(request):
            is_pending = call.cell.state is CellState.PENDING
            if call.state is not CallState.WITHDRAWN and is_pending != (call.state is not CallState.SETTLED):
                raise InvariantError(f"{call!r} is {call.state.name}, but its cell is {call.cell.state.name}")


def calls_belong_to_requests(engine: Engine) -> None:
    """Nothing is queued or runs for a request that was forgotten, except calls that were withdrawn while they ran."""
    for where, call in _placed_calls(engine):
        request = call.segment.task.request
        is_kept = engine.tasks.requests.get(request.request_id) is request
        if call.state is not CallState.WITHDRAWN and not is_kept:
            raise InvariantError(f"{call!r} is {call.state.name} {where} for a request that was forgotten")


# Queues, batches, replicas


def queue_sizes_agree(engine: Engine) -> None:
    """A queue counts what it holds."""
    for pool in engine.scheduler.pools.values():
        for queue in (pool.queue, pool.guesses):
            num_held = sum(1 for _ in queue)
            if len(queue) != num_held:
                raise InvariantError(f"a queue of {pool.program.name!r} counts {len(queue)}, holds {num_held}")


def batches_are_uniform(engine: Engine) -> None:
    """A batch holds 1 to `max_batch_size` calls of one program, with equal batch keys and static parameters."""
    for batch in engine.scheduler.batches.values():
        program = batch.replica.pool.program
        if not 1 <= len(batch.calls) <= program.options.max_batch_size:
            raise InvariantError(f"batch {batch.batch_id} of {program.name!r} has {len(batch.calls)} calls")
        if len({(call.callee, call.batch_key, call.statics) for call in batch.calls}) != 1:
            raise InvariantError(f"batch {batch.batch_id} of {program.name!r} mixes calls that may not share a batch")


def batches_belong_to_replicas(engine: Engine) -> None:
    """A batch in flight is held by one known replica, which holds at most `max_in_flight_batches` and has started the first."""
    scheduler = engine.scheduler
    held = Counter(batch_id for replica in scheduler.replicas.values() for batch_id in replica.batches)
    if held != Counter(scheduler.batches.keys()):
        raise InvariantError(f"replicas hold the batches {sorted(held.elements())}, in flight are {sorted(scheduler.batches)}")
    for replica in scheduler.replicas.values():
        if replica.pool.replicas.get(replica.replica_id) is not replica:
            raise InvariantError(f"replica {replica.replica_id!r} is not in the pool of {replica.pool.program.name!r}")
        if len(replica.batches) > engine.config.max_in_flight_batches:
            raise InvariantError(f"replica {replica.replica_id!r} holds {len(replica.batches)} batches")
        for position, batch in enumerate(replica.batches.values()):
            if (batch.started_ns is not None) != (position == 0):
                raise InvariantError(f"batch {batch.batch_id} is number {position} of its replica, {batch.started_ns=}")
    if sum(len(pool.replicas) for pool in scheduler.pools.values()) != len(scheduler.replicas):
        raise InvariantError("a pool has a replica that the scheduler does not know")


def idle_bookkeeping_agrees(engine: Engine) -> None:
    """Idle are the replicas that hold no batch, each under its own node."""
    for pool in engine.scheduler.pools.values():
        listed = {(node, name) for node, here in pool.idle.items() for name in here}
        actual = {(replica.node, name) for name, replica in pool.replicas.items() if not replica.batches}
        if listed != actual or pool.num_idle != len(actual):
            raise InvariantError(f"{pool.program.name!r}: idle are {actual}, listed {listed}, counted {pool.num_idle}")


def idle_replicas_leave_no_work(engine: Engine) -> None:
    """Work-conserving: no call waits while a replica of its program is idle, or has room and is due for the next batch.

    Only the last replica that is idle or due may be held, and not for ever.
    """
    for pool in engine.scheduler.pools.values():
        if not len(pool.queue):
            continue
        if pool.num_idle <= 1 and pool.held_until_ns > engine.now_ns:
            if pool.timer is None or pool.timer.is_cancelled or pool.timer.at_ns > pool.held_until_ns:
                raise InvariantError(f"calls of {pool.program.name!r} are held, but no timer ends that")
            continue
        if pool.num_idle:
            raise InvariantError(f"{len(pool.queue)} calls of {pool.program.name!r} wait while {pool.num_idle} replicas are idle")
        for replica in pool.replicas.values():
            if replica.prefetch_ns <= engine.now_ns:
                raise InvariantError(f"calls of {pool.program.name!r} wait, {replica.replica_id!r} is due for a batch")


def cores_are_counted(engine: Engine) -> None:
    """As many replicas as a processor counts hold batches."""
    busy = Counter(replica.processor for replica in engine.scheduler.replicas.values() if replica.batches)
    for node, processor in engine.scheduler.processors.items():
        if processor.num_busy != busy[processor]:
            raise InvariantError(f"{busy[processor]} replicas run on the cores of {node!r}, counted are {processor.num_busy}")


def prefetches_have_timers(engine: Engine) -> None:
    """While calls wait for a replica to be due for its next batch, a timer is set for then."""
    for pool in engine.scheduler.pools.values():
        due_ns = min((replica.prefetch_ns for replica in pool.replicas.values()), default=NEVER_NS)
        if not len(pool.queue) or due_ns >= NEVER_NS - 1:
            continue
        if pool.held_until_ns > engine.now_ns:
            due_ns = max(due_ns, pool.held_until_ns)
        timer = pool.timer
        if timer is None or timer.is_cancelled or timer.at_ns > due_ns:
            raise InvariantError(f"calls of {pool.program.name!r} wait for {due_ns} ns, but no timer is set for then")


# Requests


def nothing_is_left_undone(engine: Engine) -> None:
    """Between two events no task is runnable and no result is on its way."""
    tasks = engine.tasks
    if tasks.waiting.runnable or tasks.waiting.settled or tasks.recovery.pending:
        raise InvariantError(
            f"runnable: {list(tasks.waiting.runnable)}, not passed on: {list(tasks.waiting.settled)}, "
            f"not started or ended: {list(tasks.recovery.pending)}"
        )


def requests_can_progress(engine: Engine) -> None:
    """Whatever waits will be told: it waits for as many values as there are calls and tasks under way that know of it."""
    told: Counter[Call | Waiter] = Counter()
    for request in engine.tasks.requests.values():
        for entry in _entries(request):
            if is_unfinished(entry):
                told.update(entry.cell.dependents)
        for restoration in request.restoring.values():
            told.update(waiter for waiter in restoration.waiters if isinstance(waiter, Call | Part))
    told.update(waiter for waiters in engine.tasks.waiting.fetch_waiters.values() for waiter in waiters)
    for request in engine.tasks.requests.values():
        root = request.root
        is_restored = root is not None and root.cell in request.restoring
        if root is None or (root.is_live == request.is_answered and not (is_restored and root.state is TaskState.SETTLED)):
            raise InvariantError(f"request {request.request_id}: {request.is_answered=}, but its root is {request.root!r}")
        for waiting in _waiting(request):
            num_awaited = waiting.num_awaited - (isinstance(waiting, Call) and waiting.awaits_commit)
            if num_awaited != told[waiting] or not waiting.num_awaited:
                raise InvariantError(f"{waiting!r} awaits {waiting.num_awaited} values, {told[waiting]} are under way")


def paths_follow_branches(engine: Engine) -> None:
    """An active task has a path that is not closed, or waits for a decision because its guess was given up; each branch of an
    open decision has one that takes it for granted, and a path that has ended rests on a guess."""
    for task in _active_tasks(engine):
        paths = task.paths
        is_given_up = not paths and any(True for _ in _open_points(task))
        is_odd = any(path.is_closed or (path.end is not None and not path.assumed) for path in paths)
        if is_odd or not (paths or is_given_up):
            raise InvariantError(f"{task!r} is active, its paths are {paths}")
        for point in _open_points(task):
            followed = {path.assumed[point] for path in paths if point in path.assumed}
            if point.is_resolved or followed != set(point.branches):
                raise InvariantError(f"{task!r}: branches {list(point.branches)} of an open decision, followed are {followed}")


def certainty_agrees(engine: Engine) -> None:
    """A segment is certain if all decisions before it are taken; only calls in others are guesses, and may have been bet on."""
    for request in engine.tasks.requests.values():
        num_calls = num_guessed = 0
        for task in _tasks(request):
            is_certain = {task.journal: task.segment is None or task.segment.is_certain}
            for segment in task.journal.below():
                if segment.is_certain != is_certain[segment]:
                    raise InvariantError(f"a segment of {task!r} is {segment.is_certain=}")
                num_calls += len(segment.entries) * segment.is_certain
                num_guessed += len(segment.entries) * (not segment.is_certain)
                if isinstance(segment.end, BranchPoint):
                    is_certain |= dict.fromkeys(segment.end.branches.values(), segment.is_certain and segment.end.is_resolved)
                elif isinstance(segment.end, Part):
                    is_certain[segment.end.following] = segment.is_certain
        if (request.num_calls, request.num_guessed) != (num_calls, num_guessed):
            raise InvariantError(f"request {request.request_id} made {num_calls} calls and {num_guessed} guesses, counts differ")
        for call in _calls(request):
            is_odd = call.is_guess and call.segment.is_certain
            if is_odd or (call.state is CallState.GUESSED and not call.is_guess) or (call.bet is not None and not call.is_guess):
                raise InvariantError(f"{call!r} is {call.state.name}, {call.is_guess=}, {call.bet=}, {call.segment.is_certain=}")


def effects_are_certain(engine: Engine) -> None:
    """What is not pure does not run before it is certain."""
    for request in engine.tasks.requests.values():
        for call in _calls(request):
            has_run = call.state in (CallState.GUESSED, CallState.QUEUED, CallState.RUNNING) or call.cell.state is CellState.READY
            if is_effect(call) and has_run and not call.segment.is_certain:
                raise InvariantError(f"{call!r} has an effect and is {call.state.name} before it is certain")


def budgets_agree(engine: Engine) -> None:
    """What is reserved for open bets is what they are expected to waste."""
    bets = [call.bet for request in engine.tasks.requests.values() for call in _calls(request) if call.bet is not None]
    expected_s = sum((1 - bet.probability) * bet.share_s for bet in bets)
    if abs(engine.speculator.total.reserved_s - expected_s) > 1e-6:
        raise InvariantError(f"{engine.speculator.total.reserved_s} s are reserved for {len(bets)} bets, expected {expected_s}")


def answered_requests_have_effects(engine: Engine) -> None:
    """An answered request is kept only while calls with an effect run, which are counted right, or its answer is being read."""
    for request in engine.tasks.requests.values():
        effects = (entry for entry in _entries(request) if entry is not request.root and is_effect(entry))
        actual = sum(1 for entry in effects if is_unfinished(entry))
        if request.num_effects != actual or (request.is_answered and not actual and not request.is_untaken):
            raise InvariantError(f"request {request.request_id} counts {request.num_effects} effects, {actual} have not ended")


# Parts


def streams_are_in_order(engine: Engine) -> None:
    """A request has a stream as long as it streams. Nothing that could be sent is held back, nothing that rests on a guess is
    sent, and no more than `max_untaken_parts` are sent and not taken; only then a path waits for its parts to be taken."""
    limit = engine.config.max_untaken_parts
    for request in engine.tasks.requests.values():
        stream, root = request.stream, request.root
        if root is None or (stream is None) != (request.is_answered or not root.callee.is_streaming):
            raise InvariantError(f"request {request.request_id}: {request.is_answered=}, {stream=}, its root is {root!r}")
        if stream is None:
            continue
        sent = range(stream.num_taken + len(stream.untaken))
        if len(stream.untaken) > limit or any(index not in sent or not part.num_sent for index, part in stream.untaken.items()):
            raise InvariantError(f"request {request.request_id} has sent {sent}, of which {list(stream.untaken)} are not taken")
        if stream.front is not None and not stream.front.is_certain:
            raise InvariantError(f"request {request.request_id} sends parts that rest on a guess")
        if stream.is_ended != (root.state is TaskState.RETURNED) or (
            stream.is_ended and not stream.untaken and not _unsent(request)
        ):
            raise InvariantError(f"request {request.request_id} is {root.state.name}, {stream.is_ended=}, and waits for nothing")
        for path in root.paths:
            if path.awaits_room and path.num_parts - stream.num_taken < limit:
                raise InvariantError(f"a path of {root!r} waits at part {path.num_parts}, {stream.num_taken} are taken")


def _unsent(request: Request) -> list[Part]:
    """Parts that have to wait for their tensors: those that were lost, and the next one, or it would have been sent."""
    stream = request.stream
    if stream is None:
        return []
    return [part for part in stream.untaken.values() if part.is_lost] + [*islice(stream.unsent(), 1)]


def untaken_parts_are_kept(engine: Engine) -> None:
    """The tensors of a part that may be read now are kept."""
    for request in engine.tasks.requests.values():
        for part in request.stream.untaken.values() if request.stream is not None else ():
            if any(_is_stored(argument.cell) and argument.cell not in request.kept for argument in part.arguments):
                raise InvariantError(f"{part!r} of request {request.request_id} may be read, but nobody keeps its tensors")


# Stored tensors


def leases_agree(engine: Engine) -> None:
    """A block is known as long as somebody needs it: requests that keep rows of it, batches, fetches and consumers of parts that
    read it."""
    leases = [blocks for request in engine.tasks.requests.values() for blocks in request.kept.values()]
    leases += [batch.blocks for batch in engine.scheduler.batches.values()]
    leases += [blocks for _, blocks in engine.tasks.waiting.fetching.values()]
    streams = [request.stream for request in engine.tasks.requests.values() if request.stream is not None]
    leases += [part.blocks for stream in streams for part in stream.untaken.values()]
    expected = engine.leases.expected(leases)
    if expected != engine.leases.counts:
        raise InvariantError(f"leases are {expected}, counted are {engine.leases.counts}")
    strangers = {holder for holder, _ in engine.leases.counts} - {"", *engine.scheduler.replicas}
    if strangers or not engine.leases.lost <= engine.leases.counts.keys():
        raise InvariantError(f"blocks of {strangers} are known, who are gone; lost are {engine.leases.lost}")
    if len(engine.scheduler.staging) and not engine.leases.counts:
        raise InvariantError("blocks are staged that nobody needs")


def batches_read_what_they_were_given(engine: Engine) -> None:
    """A batch in flight has a lease on each of its stored inputs, also for calls that were withdrawn."""
    for batch in engine.scheduler.batches.values():
        if Counter(batch.blocks) != Counter(block for call in batch.calls for block in call.blocks):
            raise InvariantError(f"batch {batch.batch_id} has leases on {batch.blocks}")


def queued_calls_have_their_inputs(engine: Engine) -> None:
    """No call waits for a replica whose inputs cannot be read."""
    for pool in engine.scheduler.pools.values():
        for call in (*pool.queue, *pool.guesses):
            if not engine.leases.are_there(call.blocks):
                raise InvariantError(f"{call!r} is {call.state.name}, but its inputs were lost")
            request = call.segment.task.request
            if any(argument.cell not in request.kept for argument in call.arguments if _is_stored(argument.cell)):
                raise InvariantError(f"{call!r} is {call.state.name}, but nobody keeps its inputs")


def _is_stored(cell: Cell) -> bool:
    return bool(blocks_of(cell.tensors))


def restorations_are_under_way(engine: Engine) -> None:
    """Who makes a lost cell again runs, or waits for others that are made again; and somebody needs that cell."""
    placed = {call for _, call in _placed_calls(engine)}
    for request in engine.tasks.requests.values():
        waits = Counter(
            waiter for each in request.restoring.values() for waiter in each.waiters if isinstance(waiter, Call | Restoration)
        )
        for cell, restoration in request.restoring.items():
            call = restoration.call
            if call is None:
                is_odd = not restoration.num_awaited or restoration.num_awaited != waits[restoration]
            elif call.state is CallState.WAITING:
                is_odd = not call.num_awaited or call.num_awaited != waits[call]
            else:
                is_odd = call not in placed or call.is_guess
            if is_odd or restoration.cell is not cell or not any(_needs(engine, waiter) for waiter in restoration.waiters):
                raise InvariantError(f"{restoration!r} by {call!r} waits for {waits}, needed by {restoration.waiters}")


def _needs(engine: Engine, waiter: RestorationWaiter) -> bool:
    match waiter:
        case Call():
            return waiter.state is CallState.WAITING
        case Restoration():
            return waiter.request.restoring.get(waiter.cell) is waiter
        case Cell():
            return waiter in engine.tasks.waiting.fetch_waiters
        case Part():
            return waiter in _unsent(waiter.segment.task.request)
        case Request():
            return waiter.is_untaken or not waiter.is_answered


def requests_are_bounded(engine: Engine) -> None:
    """No more requests in flight, and no more calls in one, than configured."""
    if len(engine.tasks.requests) > engine.config.max_requests:
        raise InvariantError(f"{len(engine.tasks.requests)} requests are in flight")
    for request in engine.tasks.requests.values():
        if request.num_calls > 2 * engine.config.max_calls_per_request:  # guesses may have become certain, and end their task
            raise InvariantError(f"request {request.request_id} made {request.num_calls} calls")


# Timers


def requests_have_deadlines(engine: Engine) -> None:
    """Each unanswered request has a timer for its deadline, which lies ahead; nothing else has."""
    live = {timer for timer in engine.timers if timer.kind is TimerKind.DEADLINE}
    unanswered = {request_id for request_id, request in engine.tasks.requests.items() if not request.is_answered}
    if set(engine.deadlines) != unanswered or set(engine.deadlines.values()) != live:
        raise InvariantError(f"unanswered are {sorted(unanswered)}, deadlines have {sorted(engine.deadlines)}")
    for timer in live:
        if timer.at_ns <= engine.now_ns:
            raise InvariantError(f"the deadline of request {timer.key} has passed, it was not failed")


def started_batches_have_timers(engine: Engine) -> None:
    """Each batch that runs has a timer that declares its replica hung; nothing else has."""
    live = {timer for timer in engine.timers if timer.kind is TimerKind.EXECUTION}
    if live != {batch.timeout for batch in engine.scheduler.batches.values() if batch.started_ns is not None}:
        raise InvariantError(
            f"in flight are {sorted(engine.scheduler.batches)}, timers are set for {sorted(str(t.key) for t in live)}"
        )


CHECKS: tuple[Callable[[Engine], None], ...] = (
    calls_are_in_one_place,
    pending_cells_have_unfinished_calls,
    calls_belong_to_requests,
    queue_sizes_agree,
    batches_are_uniform,
    batches_belong_to_replicas,
    idle_bookkeeping_agrees,
    idle_replicas_leave_no_work,
    cores_are_counted,
    prefetches_have_timers,
    nothing_is_left_undone,
    requests_can_progress,
    paths_follow_branches,
    certainty_agrees,
    effects_are_certain,
    budgets_agree,
    answered_requests_have_effects,
    streams_are_in_order,
    untaken_parts_are_kept,
    leases_agree,
    batches_read_what_they_were_given,
    queued_calls_have_their_inputs,
    restorations_are_under_way,
    requests_are_bounded,
    requests_have_deadlines,
    started_batches_have_timers,
)


# Walks


def _entries(request: Request) -> Iterator[Entry]:
    """The request's root, and all calls and tasks below it."""
    pending: list[Entry] = [request.root] if request.root is not None else []
    while pending:
        entry = pending.pop()
        yield entry
        if isinstance(entry, Task):
            pending.extend(entry.entries())


def _calls(request: Request) -> Iterator[Call]:
    return (entry for entry in _entries(request) if isinstance(entry, Call))


def _tasks(request: Request) -> Iterator[Task]:
    return (entry for entry in _entries(request) if isinstance(entry, Task))


def _active_tasks(engine: Engine) -> Iterator[Task]:
    for request in engine.tasks.requests.values():
        yield from (task for task in _tasks(request) if task.state is TaskState.ACTIVE)


def _open_points(task: Task) -> Iterator[BranchPoint]:
    ends = (segment.end for segment in task.journal.below())
    return (end for end in ends if isinstance(end, BranchPoint) and end.is_open)


def _waiting(request: Request) -> "Iterator[Call | Waiter]":
    """Everybody in a request who waits for values."""
    yield from _unsent(request)
    for entry in _entries(request):
        if isinstance(entry, Call):
            if entry.state is CallState.WAITING:
                yield entry
        elif entry.state is TaskState.RETURNED:
            if not entry.callee.is_streaming:
                yield entry
        elif entry.state is TaskState.ACTIVE:
            yield from _open_points(entry)
            yield from (path for path in entry.paths if path.end is None and path.undecided is None and not path.awaits_room)


def _placed_calls(engine: Engine) -> Iterator[tuple[str, Call]]:
    for pool in engine.scheduler.pools.values():
        yield from (("in a queue", call) for call in (*pool.queue, *pool.guesses))
    for batch in engine.scheduler.batches.values():
        yield from ((f"in batch {batch.batch_id}", call) for call in batch.calls)
