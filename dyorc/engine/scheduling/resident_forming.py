"""Which calls form the next batch of a program that shares a process, and where.

Calls with residents go to the process that holds them, all others to the one with the most room. Nothing is sent ahead: the batch
forms when the process is free, of all that is ready then. So loops of all requests share a batch at every turn.

A call that begins a chain waits while the chains that have begun fill a batch: else all would begin at once, and the youngest
would stand still for seconds between two turns. It also waits until there is room for it. If nothing in the process can go on
otherwise, room is made at the cost of younger requests. The oldest request that waits always gets it, so one chain can always go
on.
"""

from collections.abc import Callable, Iterable, Iterator

from dyorc.core.tensor import BlockId
from dyorc.engine.actions import FormReason
from dyorc.engine.model.program_call import Call
from dyorc.engine.request_trace import TraceNote
from dyorc.engine.scheduling.batch_forming import BatchFormer, by_cost, fair_size, reason_when_full
from dyorc.engine.scheduling.bound_calls import BoundCalls
from dyorc.engine.scheduling.lanes import Lanes
from dyorc.engine.scheduling.processes import Process
from dyorc.engine.scheduling.queues import CallQueue
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import FormedBatch, Replica
from dyorc.engine.scheduling.speculation_policy import SpeculationPolicy


class ResidentFormer:
    """Forms batches of programs that share a process.

    Args:
        evict: Drops residents. Calls that need them leave their queues.
        put_off: Takes a call that has left its queue and has to be made ready again.
    """

    def __init__(
        self,
        former: BatchFormer,
        policy: SpeculationPolicy,
        evict: Callable[[Iterable[BlockId]], None],
        put_off: Callable[[Call], None],
    ) -> None:
        self._former = former
        self._policy = policy
        self._evict = evict
        self._put_off = put_off

    def form_certain(self, pool: ReplicaPool, now_ns: int) -> FormedBatch | None:
        """Returns the next batch of certain calls; None if no call waits or none can run now."""
        for replica, process in _idle(pool):
            bound = pool.bound.get(process.name)
            if bound is not None and bound.queue.size:
                max_calls = self._fit(pool, process, bound)
                if max_calls and (formed := self._form(pool, replica, bound.queue, bound.guesses, max_calls, now_ns)):
                    return formed
        if not pool.queue.size:
            return None
        place = self._place(pool, now_ns)
        if place is None:
            return None
        replica, max_calls = place
        formed = self._form(pool, replica, pool.queue, pool.guesses, max_calls, now_ns)
        if formed is not None and pool.no_room_ns:
            for call in formed.calls:
                if call.trace is not None and call.submitted_ns <= pool.no_room_ns and (story := call.context.story) is not None:
                    story.note(TraceNote(now_ns, "waited_for_room", pool.program.name))
        return formed

    def _fit(self, pool: ReplicaPool, process: Process, bound: BoundCalls) -> int:
        """Returns how many calls that are bound to a process have room for what they return; 0 if none is left. If not even the
        next has, the youngest request gives up its residents, or looks for room elsewhere if it has none here; one that is alone
        may exceed the limit."""
        while (call := bound.queue.first()) is not None:
            number = _num_fitting(pool, process, call, bound)
            if number:
                return number
            task = call.segment.task
            task.residents.need(task.residents.num_bytes + pool.growth.expect(call))
            requests = process.requests()
            if requests <= {task.request}:
                return 1
            is_here = task.request in requests
            if blocks := process.youngest() if is_here else process.youngest(task.request, is_urgent=call.is_suspect):
                self._evict(blocks)
            elif is_here:
                return 1  # batches read the others
            else:
                _release_from_home(pool, call, bound)
        return 0

    def _place(self, pool: ReplicaPool, now_ns: int) -> tuple[Replica, int] | None:
        """Returns where the next unbound call goes, and how many such calls may go there."""
        first = pool.queue.first()
        if first is None:
            return None
        idle = [(replica, process) for replica, process in _idle(pool) if not process.is_leaving]
        has_residents = pool.program.signature.outputs.has_residents
        places = [place for place in idle if not _is_another_first(place[1], pool, first, CallQueue.first)]
        if places and not has_residents:
            if first.is_suspect:  # where it does the least harm
                return min(places, key=lambda place: place[1].num_bytes)[0], 2**30
            return places[0][0], 2**30
        if has_residents and any(replica.process is not None and replica.process.is_whole for replica in pool.replicas.values()):
            idle = [place for place in idle if place[1].is_whole]
            places = [place for place in places if place[1].is_whole]
        task, num_bytes = first.segment.task, pool.growth.expect(first)
        best: tuple[tuple[int, int], Replica] | None = None
        has_room = False
        for replica, process in places:
            room = process.room_for(task, num_bytes)
            has_room = has_room or room > 0
            room = min(room, _num_beside(process))
            if room > 0 and (best is None or (room, -process.num_bytes) > best[0]):
                best = (room, -process.num_bytes), replica
        if best is not None:
            return best[1], best[0][0]
        if has_room:
            return None
        stuck = [place for place in idle if self._is_stuck(place[1])]
        place = self._make_place(pool, stuck) if stuck else None
        if place is None and has_residents and idle:
            pool.no_room_ns = now_ns
        return place

    def _make_place(self, pool: ReplicaPool, stuck: list[tuple[Replica, Process]]) -> tuple[Replica, int] | None:
        """Makes room for the oldest unbound call in a process in which nothing goes on. It goes first now, whosever turn it is:
        the residents that are in the way may be those of its own request, or of older ones that wait for it."""
        call = pool.queue.first()
        if call is not None and not call.is_suspect:
            call = pool.queue.oldest()
        if call is None:
            return None
        for replica, process in stuck:
            if _is_another_first(process, pool, call, CallQueue.oldest):
                continue
            if not pool.program.signature.outputs.has_residents or self._clear_room(pool, process, call):
                if call is not pool.queue.first():
                    pool.queue.advance(call)
                return replica, 1
        return None

    def _clear_room(self, pool: ReplicaPool, process: Process, call: Call) -> bool:
        """Has younger requests give up their residents until a call has room. Returns whether it may begin: if nothing but the
        residents of its own request is left, it may exceed the limit."""
        task, num_bytes = call.segment.task, pool.growth.expect(call)
        while not process.room_for(task, num_bytes) and (blocks := process.youngest(task.request, is_urgent=call.is_suspect)):
            self._evict(blocks)  # suspects run one after another, so that older ones may wait for one
        return process.room_for(task, num_bytes) > 0 or process.requests() <= {task.request}

    @staticmethod
    def _is_stuck(process: Process) -> bool:
        """Returns whether no chain of a process goes on by itself."""
        for replica in process.replicas.values():
            bound = replica.pool.bound.get(process.name)
            if replica.batches or (bound is not None and bound.queue.size):
                return False
        return True

    def _form(
        self, pool: ReplicaPool, replica: Replica, queue: CallQueue, guesses: Lanes, max_calls: int, now_ns: int
    ) -> FormedBatch | None:
        max_size, num_ready, cost = _limits(pool, queue)
        size = min(fair_size(pool, num_ready, cost, max_size) if queue is pool.queue else max_size, max_calls)
        calls, is_retry = self._former.take(pool, queue, replica, size, cost, now_ns)
        if not calls:
            return None
        if pool.max_cost is not None:
            max_size = pool.max_size(calls[0].cost)
        if pool.program.signature.consumed:
            self._keep_one_consumer(calls)
        reason = FormReason.QUEUE_EMPTIED
        if is_retry:
            reason = FormReason.RETRY
        elif len(calls) == max_size:
            reason = reason_when_full(pool, max_size)
        if not is_retry and guesses.size and not calls[0].chain:
            self._policy.fill(pool, guesses, replica, calls, min(max_size, max_calls), now_ns, now_ns)
        return FormedBatch(replica, calls, reason)

    def _keep_one_consumer(self, calls: list[Call]) -> None:
        """Leaves in a batch one call for each resident that is overwritten. The others have theirs made again."""
        taken: set[BlockId] = set()
        for call in list(calls):
            blocks = consumed_by(call)
            if taken.isdisjoint(blocks):
                taken.update(blocks)
            else:
                calls.remove(call)
                call.wait()
                self._put_off(call)

    def form_guesses(self, pool: ReplicaPool, now_ns: int) -> FormedBatch | None:
        """Returns a batch of guesses alone; None without guesses, if nothing is idle, or it does not pay."""
        for replica, process in _idle(pool):
            if not replica.has_core:
                pool.await_core(replica)
                continue
            bound = pool.bound.get(process.name)
            places: list[tuple[Lanes, int]] = []
            if bound is not None and not bound.queue.size and (guess := bound.guesses.peek()) is not None:
                places.append((bound.guesses, _num_fitting(pool, process, guess, bound)))
            first = pool.guesses.peek()
            if first is not None and not pool.queue.size and not process.is_leaving:
                has_residents = pool.program.signature.outputs.has_residents
                num_bytes = pool.growth.expect(first)
                places.append((pool.guesses, process.room_for(first.segment.task, num_bytes) if has_residents else 2**30))
            for guesses, room in places:
                if guesses.size and room:
                    max_size, _, _ = _limits(pool, guesses)
                    calls = self._policy.form_batch(pool, guesses, replica, min(max_size, room), now_ns)
                    if calls:
                        return FormedBatch(replica, calls, FormReason.GUESSED)
        return None


def _num_beside(process: Process) -> int:
    """Returns how many chains may begin in a process now: no more than fit into the next batches of those that have begun."""
    number = 2**30
    for replica in process.replicas.values():
        bound = replica.pool.bound.get(process.name)
        if bound is not None and bound.queue.size:
            max_size, _, _ = _limits(replica.pool, bound.queue)
            if max_size > 1:
                number = min(number, max_size - bound.queue.size)
    return number


def _idle(pool: ReplicaPool) -> Iterator[tuple[Replica, Process]]:
    """Yields the replicas that can take a batch, each with its process."""
    for here in list(pool.idle.values()):
        for replica in list(here.values()):
            if replica.process is not None:
                yield replica, replica.process


def _num_fitting(pool: ReplicaPool, process: Process, call: Call, bound: BoundCalls) -> int:
    """Returns how many calls that are bound to a process have room there for what they return; 0 if not even `call`, the next.
    Cost: looks at all of them, if there is a limit."""
    if process.limit is None or not pool.program.signature.outputs.has_residents:
        return 0 if process.is_full else 2**30
    added = [pool.growth.expect(each) for calls in (bound.queue, bound.guesses) for each in calls]
    return process.num_fitting(pool.growth.expect(call), added)


def _release_from_home(pool: ReplicaPool, call: Call, bound: BoundCalls) -> None:
    """Lets a call that makes a resident again do so where there is room, as a new chain does: at its home, where none is left,
    only older requests have residents."""
    call.segment.task.residents.homes = {}  # else what it makes would have to come here after all
    bound.queue.take_out(lambda other: other is call)
    call.wait()
    call.process = ""
    if call.is_suspect:
        pool.queue.add_retry([call])
    else:
        pool.queue.add(call)


def _limits(pool: ReplicaPool, waiting: CallQueue | Lanes) -> tuple[int, int, float]:
    """Returns how many calls a batch may have, how many are ready, and what each costs, if all are like the first."""
    if pool.max_cost is None:
        return pool.program.options.max_batch_size, waiting.size, 1.0
    num_ready, cost = by_cost(waiting)
    return pool.max_size(cost), num_ready, cost


def _is_another_first(process: Process, pool: ReplicaPool, call: Call, next_of: Callable[[CallQueue], Call | None]) -> bool:
    """Returns whether a chain of another program that waits for room in a process goes before a call.

    Args:
        next_of: Which call of each program is meant: the one whose turn it is, or the oldest.
    """
    for replica in process.replicas.values():
        other = replica.pool
        if other is not pool and other.queue.size and other.program.signature.outputs.has_residents:
            another = next_of(other.queue)
            if another is not None and another.order < call.order:
                return True
    return False


def consumed_by(call: Call) -> list[BlockId]:
    """Returns the residents that a call overwrites."""
    if call.chain:
        return []
    return [(call.operands[at].holder, call.operands[at].block) for at in call.callee.signature.consumed]


def served_first(pool: ReplicaPool) -> int:
    """Returns the place of a program among those of its processes: the one whose last batch is the oldest goes first."""
    return max((process.last_batch.get(pool.program.name, 0) for _, process in _idle(pool)), default=0)
