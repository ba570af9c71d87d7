"""Requests, their tasks and parts, and their stored tensors: leases, and what is restored."""

from collections import Counter
from collections.abc import Iterable
from math import inf

from dyorc.core.tensor import DType
from dyorc.engine.engine import Engine
from dyorc.engine.invariants.in_flight import (
    InvariantError,
    active_tasks,
    all_calls,
    batches,
    calls_of,
    entries_of,
    is_kept,
    open_points,
    placed_calls,
    pools,
    postponed_waiters,
    requests,
    scheduler_of,
    tasks_of,
    unsent_parts,
    waiters_of,
)
from dyorc.engine.model.futures import PENDING, READY, Future, Waiter
from dyorc.engine.model.journal import BranchPoint, Entry, StreamPart
from dyorc.engine.model.part_list import PartList
from dyorc.engine.model.program_call import Call, CallState, Feed
from dyorc.engine.model.request_tree import Request, Restoration, RestorationWaiter, Task, TaskState
from dyorc.engine.model.tree_walks import is_effect, is_unfinished
from dyorc.engine.scheduling.places import is_awaited


def nothing_is_left_undone(engine: Engine) -> None:
    """Between two events no task is runnable and no result is on its way."""
    if engine.turn.has_work() or engine.turn.actions:
        raise InvariantError(f"the turn is over, and left is {engine.turn!r}")


def requests_can_progress(engine: Engine) -> None:
    """No waiter waits forever: it awaits as many values as there are unfinished calls and tasks that will tell it."""
    num_expected: Counter[Call | Waiter] = Counter()
    postponed = postponed_waiters(engine)
    for request in requests(engine):
        for entry in entries_of(request):
            if is_unfinished(entry):
                num_expected.update(entry.future.dependents)
                if entry.parts is not None:
                    num_expected.update(entry.parts.last.dependents)
                    num_expected.update(_awaiting_start(entry, entry.parts))
        for restoration in request.restoring.values():
            num_expected.update(waiter for waiter in restoration.waiters if isinstance(waiter, Call | StreamPart | Feed))
    num_expected.update(waiter for waiters in engine.tasks.fetches.waiters.values() for waiter in waiters)
    for request in requests(engine):
        root = request.root
        is_restored = root is not None and root.future in request.restoring
        may_wait = is_restored or (request.waits_for_effects and request.num_effects > 0)
        if root is None or (root.is_live == request.is_answered and not (may_wait and root.state is TaskState.SETTLED)):
            raise InvariantError(f"request {request.request_id}: {request.is_answered=}, but its root is {request.root!r}")
        for waiting in waiters_of(request):
            num_awaited = waiting.num_awaited - (isinstance(waiting, Call) and waiting.awaits_commit)
            if num_awaited != num_expected[waiting] or not (waiting.num_awaited or waiting in postponed):
                raise InvariantError(f"{waiting!r} awaits {waiting.num_awaited} values, {num_expected[waiting]} are under way")


def _awaiting_start(entry: Entry, parts: PartList) -> list[Call]:
    """Returns the calls that wait until a call has a place, because they take its stream."""
    if not isinstance(entry, Call) or entry.state not in (CallState.WAITING, CallState.GUESSED, CallState.QUEUED):
        return []
    return [stream.taker for stream in parts.taken_by if stream.awaits_start and isinstance(stream.taker, Call)]


def awaited_places_are_known(engine: Engine) -> None:
    """A request knows each of its calls that is queued while something waits for its parts; all that it knows yield still."""
    for request in requests(engine):
        known = {call for calls in request.awaiting_place.values() for call in calls}
        awaited = {entry for entry in request.yielding if isinstance(entry, Call) and is_awaited(entry)}
        if not awaited <= known <= set(request.yielding):
            raise InvariantError(f"request {request.request_id} waits for places of {awaited}, knows of {known}")
        if any(call.callee.name != name for name, calls in request.awaiting_place.items() for call in calls):
            raise InvariantError(f"request {request.request_id} keeps calls under the name of another program")


def unread_parts_are_known(engine: Engine) -> None:
    """A request knows of all parts that nothing can read and that have not ended; all that it knows come still."""
    for request in requests(engine):
        yielded = {entry.parts for entry in request.yielding if entry.parts is not None}
        unread = {parts for parts in yielded if not (parts.is_unbounded or parts.taken_by or parts.first_held < inf)}
        if not unread <= set(request.maybe_unread) <= yielded:
            raise InvariantError(f"request {request.request_id}: unread are {unread}, known are {set(request.maybe_unread)}")


def paths_follow_branches(engine: Engine) -> None:
    """An active task has a path that is not closed, or waits for a decision because its guess was given up; each branch of an
    open decision has one that takes it for granted, and a path that has ended rests on a guess."""
    postponed = postponed_waiters(engine)
    for task in active_tasks(engine):
        paths = task.paths
        is_given_up = not paths and any(True for _ in open_points(task))
        ended = [path for path in paths if path.end is not None and path not in postponed]
        is_odd = any(path.is_closed for path in paths) or any(not path.assumed for path in ended)
        if is_odd or not (paths or is_given_up):
            raise InvariantError(f"{task!r} is active, its paths are {paths}")
        for point in open_points(task):
            followed = {path.assumed[point] for path in paths if point in path.assumed}
            reached = {p.assumed[point] for p in paths if point in p.assumed and p not in postponed}
            if point.is_resolved or not reached <= set(point.branches) <= followed:
                raise InvariantError(f"{task!r}: branches {list(point.branches)} of an open decision, followed are {followed}")


def certainty_agrees(engine: Engine) -> None:
    """A segment is certain if all decisions before it are taken; only calls in others are guesses, and may have been bet on."""
    for request in requests(engine):
        num_calls = num_guessed = 0
        for task in tasks_of(request):
            is_certain = {task.journal: task.segment is None or task.segment.is_certain}
            for segment in task.journal.below():
                if segment.is_certain != is_certain[segment]:
                    raise InvariantError(f"a segment of {task!r} is {segment.is_certain=}")
                num_calls += len(segment.entries) * segment.is_certain
                num_guessed += len(segment.entries) * (not segment.is_certain)
                if isinstance(segment.end, BranchPoint):
                    is_certain |= dict.fromkeys(segment.end.branches.values(), segment.is_certain and segment.end.is_resolved)
                elif isinstance(segment.end, StreamPart):
                    is_certain[segment.end.following] = segment.is_certain
        if (request.num_calls, request.num_guessed) != (num_calls, num_guessed):
            raise InvariantError(f"request {request.request_id} made {num_calls} calls and {num_guessed} guesses, counts differ")
        for call in calls_of(request):
            is_odd = call.is_guess and call.segment.is_certain
            if is_odd or (call.state is CallState.GUESSED and not call.is_guess) or (call.bet is not None and not call.is_guess):
                raise InvariantError(f"{call!r} is {call.state.name}, {call.is_guess=}, {call.bet=}, {call.segment.is_certain=}")


def effects_are_certain(engine: Engine) -> None:
    """An impure call does not run before it is certain."""
    for call in all_calls(engine):
        has_run = call.state in (CallState.GUESSED, CallState.QUEUED, CallState.RUNNING) or call.future.state is READY
        if is_effect(call) and has_run and not call.segment.is_certain:
            raise InvariantError(f"{call!r} has an effect and is {call.state.name} before it is certain")


def budgets_agree(engine: Engine) -> None:
    """What is reserved for open bets is what they are expected to waste."""
    bets = [call.bet for call in all_calls(engine) if call.bet is not None]
    expected_s = sum((1 - bet.probability) * bet.share_s for bet in bets)
    if abs(engine.speculator.total.reserved_s - expected_s) > 1e-6:
        raise InvariantError(f"{engine.speculator.total.reserved_s} s are reserved for {len(bets)} bets, expected {expected_s}")


def answered_requests_have_effects(engine: Engine) -> None:
    """An answered request is kept only while calls with an effect run, which are counted right, or its answer is being read."""
    for request in requests(engine):
        effects = (entry for entry in entries_of(request) if entry is not request.root and is_effect(entry))
        actual = sum(1 for entry in effects if is_unfinished(entry))
        if request.num_effects != actual or (request.is_answered and not actual and not request.is_untaken):
            raise InvariantError(f"request {request.request_id} counts {request.num_effects} effects, {actual} have not ended")


def requests_are_bounded(engine: Engine) -> None:
    """No more requests in flight, and no more calls in one, than configured."""
    if len(engine.tasks.requests) > engine.config.max_requests:
        raise InvariantError(f"{len(engine.tasks.requests)} requests are in flight")
    for request in requests(engine):
        if request.num_calls > 2 * engine.config.max_calls_per_request:  # guesses may have become certain, and end their task
            raise InvariantError(f"request {request.request_id} made {request.num_calls} calls")


def streams_are_in_order(engine: Engine) -> None:
    """A task has a stream as long as it yields. Nothing that could be passed on is held back, nothing that rests on a guess is
    sent, and no more than `max_untaken_parts` are sent and not taken; only then a path waits for its parts to be taken."""
    limit = engine.config.max_untaken_parts
    for request in requests(engine):
        root = request.root
        if root is None or (root.stream is None) != (request.is_answered or not root.callee.is_streaming):
            raise InvariantError(f"request {request.request_id}: {request.is_answered=}, its root is {root!r}")
        for task in tasks_of(request):
            stream = task.stream
            if stream is None or request in engine.turn.postponed or not task.is_live:  # a root may wait for effects
                continue
            sent = range(stream.num_taken + len(stream.untaken))
            is_odd = any(index not in sent or not part.num_sent for index, part in stream.untaken.items())
            if len(stream.untaken) > limit or is_odd or (stream.untaken and task is not root):
                raise InvariantError(f"request {request.request_id} has sent {sent}, and {list(stream.untaken)} are not taken")
            if stream.front is not None and stream.front.is_certain != (task.segment is None or task.segment.is_certain):
                raise InvariantError(f"{task!r} of request {request.request_id} passes on parts that rest on a guess")
            if stream.is_ended != (task.state is TaskState.RETURNED) or (
                stream.is_ended and not stream.untaken and not unsent_parts(task)
            ):
                raise InvariantError(f"{task!r} is {task.state.name}, {stream.is_ended=}, and waits for nothing")
            num_taken = stream.num_taken if task.parts is None else task.parts.num_read
            for path in task.paths:
                if path.awaits_room and path.num_parts - num_taken < limit:
                    raise InvariantError(f"a path of {task!r} waits at part {path.num_parts}, {num_taken} are taken")


def parts_are_in_their_places(engine: Engine) -> None:
    """A stream has a ready place for each part that came, and then one that is pending as long as its producer runs."""
    for request in requests(engine):
        for entry in entries_of(request):
            if entry.parts is None:
                continue
            *came, last = entry.parts.cells
            is_odd = any(cell.state is PENDING or cell.is_end for cell in came)
            has_ended = entry.future.state is not PENDING
            if is_odd or has_ended != (last.state is not PENDING) or last.is_end != (last.state is READY):
                raise InvariantError(f"{entry!r} is {entry.state.name}, and its stream {entry.parts!r} ends with {last!r}")


def untaken_parts_are_kept(engine: Engine) -> None:
    """The tensors of a part that may be read now are kept."""
    for request in requests(engine):
        for part in _untaken(request):
            if not all(is_kept(argument, request) for argument in part.arguments):
                raise InvariantError(f"{part!r} of request {request.request_id} may be read, but its tensors are not kept")


def _untaken(request: Request) -> Iterable[StreamPart]:
    """Returns the parts that a client may read now."""
    root = request.root
    return () if root is None or root.stream is None else root.stream.untaken.values()


def leases_agree(engine: Engine) -> None:
    """A block is leased as long as it is needed: by requests that keep rows of it, and by batches, fetches and consumers of parts
    that read it."""
    leases = [blocks for request in requests(engine) for blocks in request.pinned.values()]
    leases += [batch.blocks for batch in batches(engine)]
    leases += [
        each for batch in batches(engine) if batch.ongoing for fed in batch.ongoing.fed_blocks.values() for each in fed.values()
    ]
    leases += [blocks for _, blocks in engine.tasks.fetches.in_progress.values()]
    leases += [part.blocks for request in requests(engine) for part in _untaken(request)]
    expected = Counter(block for each in leases for block in each)
    counted = engine.leases.counts | engine.leases.absent_counts
    if expected != counted:
        raise InvariantError(f"leases are {expected}, counted are {counted}")
    if missing := scheduler_of(engine).replicas.keys() - engine.leases.holders:
        raise InvariantError(f"replicas {missing} may hold tensors, but count as gone")
    strangers = {holder for holder, _ in engine.leases.counts} - engine.leases.holders
    if strangers or not engine.leases.lost <= engine.leases.counts.keys():
        raise InvariantError(f"blocks of {strangers} are known, which are gone; lost are {engine.leases.lost}")
    if len(scheduler_of(engine).staging) and not engine.leases.counts:
        raise InvariantError("blocks are staged that are not needed")


def batches_read_what_they_were_given(engine: Engine) -> None:
    """A batch in flight has one lease on each block with inputs of its calls, withdrawn ones too."""
    for batch in batches(engine):
        if Counter(batch.blocks) != Counter({block for call in batch.calls for block in call.blocks}):
            raise InvariantError(f"batch {batch.batch_id} has leases on {batch.blocks}")


def queued_calls_have_their_inputs(engine: Engine) -> None:
    """No call whose inputs cannot be read waits for a replica."""
    for pool in pools(engine):
        for call in [call for queue in (*pool.queues(), *pool.queues_of_guesses()) for call in queue]:
            if not engine.leases.are_there(call.blocks):
                raise InvariantError(f"{call!r} is {call.state.name}, but its inputs were lost")
            request = call.segment.task.request
            if not all(is_kept(argument, request) for argument in call.arguments):
                raise InvariantError(f"{call!r} is {call.state.name}, but its inputs are not kept")


def restorations_are_under_way(engine: Engine) -> None:
    """Each restoration runs, or waits for others that are under way, and its future is needed."""
    placed = {call for _, call in placed_calls(engine)}
    for request in requests(engine):
        waits = Counter(
            waiter for each in request.restoring.values() for waiter in each.waiters if isinstance(waiter, Call | Restoration)
        )
        for future, restoration in request.restoring.items():
            call, needers = restoration.call, [*restoration.waiters, *restoration.feeds]
            if call is None and (restoration.cells or restoration.feeds):
                is_odd = not isinstance(future.producer, Call) or not is_unfinished(future.producer)
            elif call is None:
                is_odd = not restoration.num_awaited or restoration.num_awaited != waits[restoration]
            elif call.state is CallState.WAITING:
                is_odd = not call.num_awaited or call.num_awaited != waits[call]
            else:
                is_odd = call not in placed or call.is_guess
            if is_odd or restoration.future is not future or not any(_needs(engine, waiter) for waiter in needers):
                raise InvariantError(f"{restoration!r} by {call!r} waits for {waits}, needed by {restoration.waiters}")


def _needs(engine: Engine, waiter: RestorationWaiter) -> bool:
    match waiter:
        case Call():
            return waiter.state is CallState.WAITING
        case Restoration():
            return waiter.request.restoring.get(waiter.future) is waiter
        case Future():
            return waiter in engine.tasks.fetches.waiters
        case StreamPart():
            return waiter in unsent_parts(waiter.segment.task)
        case Feed():
            return is_unfinished(waiter.call)
        case Request():
            return waiter.is_untaken or not waiter.is_answered


def residents_are_counted(engine: Engine) -> None:
    """A process counts the residents that are leased there, and a task its own; it is known as long as it has replicas."""
    scheduler = scheduler_of(engine)
    processes = scheduler.processes.by_name
    counted = {block for process in processes.values() for block in process.residents}
    leased = {block for block in engine.leases.counts if block[0] in processes and block[0] not in scheduler.replicas}
    if not counted <= engine.leases.counts.keys() or not leased <= counted:
        raise InvariantError(f"leased residents are {leased}, counted are {counted}")
    by_task: Counter[Task] = Counter()
    for process in processes.values():
        by_task.update(process.bytes_by_task())
        if process.num_bytes != sum(resident.num_bytes for resident in process.residents.values()) or not process.replica_ids:
            raise InvariantError(f"process {process.name!r} counts {process.num_bytes} bytes, {process.replica_ids=}")
    for task, num_bytes in by_task.items():
        if task.residents.num_bytes != num_bytes:
            raise InvariantError(f"{task!r} counts {task.residents.num_bytes} bytes of residents, it has {num_bytes}")


def residents_are_read_where_they_are(engine: Engine) -> None:
    """Calls with residents wait for the process that holds all of them, and batches run there."""
    for batch in batches(engine):
        for call in batch.calls:
            holders = {tensor.holder for tensor in call.operands if tensor.dtype is DType.RESIDENT}
            process = batch.replica.process
            if holders and (process is None or holders != {process.name}):
                raise InvariantError(f"{call!r} reads residents of {holders}, and runs on {batch.replica.replica_id!r}")
    for pool in pools(engine):
        for name, bound in pool.bound.items():
            for call in [call for queue in (bound.queue, bound.guesses) for call in queue]:
                if call.process != name or {t.holder for t in call.operands if t.dtype is DType.RESIDENT} - {name}:
                    raise InvariantError(f"{call!r} waits for {name!r}, but has {call.operands}")
