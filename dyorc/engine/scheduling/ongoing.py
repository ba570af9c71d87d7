"""Batches of programs that wait or yield: several run side by side on a replica, and they are spoken to while they run.

A batch of such a program is one call. Its replica counts as idle while it runs fewer than `Program.max_ongoing`.

    dispatched with credit for n parts ── parts come ──> no credit left: not timed ── GrantParts ──> goes on
                                   └── CancelBatch, because nothing needs it ──> ends like any other, and is timed until then

A batch that reads streams is fed with their parts while it runs. It copies each before it says that it has read it.

A batch that yields may send a part only if it has credit for it: up to `EngineConfig.max_untaken_parts` more than the furthest
reader has read. Credit is given in large steps, so that a long stream costs few messages. One that holds a place for which
others wait for ever otherwise gets more (`places.py`). The limit of a program's
execution time counts anew after each part, and not while there is no credit, or no part to read.
"""

from collections.abc import Mapping

from dyorc.core.tensor import BlockId, TensorRef, blocks_of
from dyorc.engine.actions import CancelBatch, FeedPart, GrantParts
from dyorc.engine.engine_context import EngineContext
from dyorc.engine.events import BatchPart, InputPartsTaken
from dyorc.engine.model.program_call import Call
from dyorc.engine.scheduling.places import held_up, jammed_pools, needs_way, starving_for_place
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import NEVER_NS, Batch, Ongoing
from dyorc.engine.timers import TimerKind
from dyorc.engine.turn import CallPart, CallStarted, CallUnready, InputTaken
from dyorc.errors import DyOrcError


class OngoingBatches:
    """Gives credit, takes parts, and cancels."""

    def __init__(self, context: EngineContext, batches: dict[int, Batch]) -> None:
        self._turn = context.turn
        self._timers = context.timers
        self._leases = context.leases
        self._max_untaken = context.config.max_untaken_parts
        self._batches = batches

    def begin(self, batch: Batch) -> int:
        """Makes a batch that has just started one that is spoken to. Returns how many parts it may send."""
        call = batch.calls[0]
        ongoing = batch.ongoing = Ongoing()
        ongoing.since_ns = self._turn.now_ns
        if call.parts is not None:
            call.parts.num_again = 0
            ongoing.max_parts = self._limit(call)
        if call.streams:
            ongoing.starving.update(range(len(call.streams)))
        if call.streams or (call.parts is not None and call.parts.taken_by):
            self._turn.ended.append(CallStarted(call))
        self._restart_clock(batch, ongoing)
        return ongoing.max_parts

    def _limit(self, call: Call) -> int:
        """Returns how many parts a call may send in all, as far as its stream was read."""
        most = _most(call)
        if call.parts is None or call.parts.is_unbounded:
            return most
        return min(most, call.parts.num_read + self._max_untaken)

    def grant(self, batch: Batch) -> None:
        """Lets a batch send more, if enough was read since it was last allowed to."""
        ongoing = batch.ongoing
        if ongoing is None or ongoing.is_cancelled:
            return
        call = batch.calls[0]
        limit = min(self._limit(call) + ongoing.num_lent, _most(call))
        num_more = limit - ongoing.max_parts
        if num_more <= 0 or (num_more < self._max_untaken // 2 and limit < _most(call)):
            return
        had_credit = ongoing.has_credit
        ongoing.max_parts = limit
        if not had_credit:
            ongoing.since_ns = self._turn.now_ns
            self._restart_clock(batch, ongoing)
        self._turn.actions.append(GrantParts(batch.replica.replica_id, batch.batch_id, limit))

    def make_way(self, pool: ReplicaPool, pools: Mapping[str, ReplicaPool]) -> None:
        """Lets calls that wait to be read go on to their end, if that is the only way to a free place of a program."""
        held = list(held_up(pool))
        if in_own_way := [batch for batch in held if needs_way(batch.calls[0])]:
            for batch in in_own_way:
                self._lend(batch)
        elif jammed := jammed_pools(pool, pools):
            held = held or [batch for each in jammed for batch in held_up(each)]
            if held:
                self._lend(min(held, key=_num_lent))
            elif (call := starving_for_place(jammed)) is not None:
                self.restart(call, pools[call.callee.name])

    def _lend(self, batch: Batch) -> None:
        if batch.ongoing is not None:
            batch.ongoing.num_lent += self._max_untaken
            self.grant(batch)

    def part_came(self, event: BatchPart) -> None:
        """Takes a part."""
        batch = self._batches.get(event.batch_id)
        ongoing = None if batch is None else batch.ongoing
        if batch is None or ongoing is None or batch.replica.replica_id != event.replica_id or event.index != ongoing.num_parts:
            self._leases.discard(blocks_of(event.tensors))
            return
        ongoing.num_parts += 1
        now_ns = self._turn.now_ns
        batch.replica.pool.record.count_part(event.index, now_ns - ongoing.since_ns)
        ongoing.since_ns = now_ns
        if not ongoing.is_cancelled:
            self._restart_clock(batch, ongoing)
        if not ongoing.has_credit and batch.replica.pool.queue.size:
            self._turn.touched[batch.replica.pool.program.name] = None
        self._turn.ended.append(CallPart(batch.calls[0], event.index, event.tensors, event.digest))

    # What it reads

    def feed(self, batch: Batch, stream: int, index: int, tensors: tuple[TensorRef, ...]) -> None:
        """Sends a batch the next part of one of its streams."""
        ongoing = batch.ongoing
        if ongoing is None or ongoing.is_cancelled:
            return
        if blocks := blocks_of(tensors):
            self._leases.acquire(blocks)
            ongoing.fed_blocks.setdefault(stream, {})[index] = blocks
        ongoing.num_fed[stream] = index + 1
        self._satisfy(batch, ongoing, stream)
        self._turn.actions.append(FeedPart(batch.replica.replica_id, batch.batch_id, stream, index, tensors))

    def end_feed(self, batch: Batch, stream: int, index: int, error: DyOrcError | None) -> None:
        """Sends a batch the end of one of its streams."""
        ongoing = batch.ongoing
        if ongoing is None or ongoing.is_cancelled:
            return
        ongoing.num_fed[stream] = NEVER_NS
        self._satisfy(batch, ongoing, stream)
        self._turn.actions.append(FeedPart(batch.replica.replica_id, batch.batch_id, stream, index, (), True, error))

    def _satisfy(self, batch: Batch, ongoing: Ongoing, stream: int) -> None:
        """Notes that a batch has something to read: if it had nothing, its time counts from now on."""
        if stream in ongoing.starving:
            ongoing.starving.discard(stream)
            self._restart_clock(batch, ongoing)

    def input_taken(self, event: InputPartsTaken) -> None:
        """Notes how far a batch has read one of its streams."""
        batch = self._batches.get(event.batch_id)
        ongoing = None if batch is None else batch.ongoing
        if batch is None or ongoing is None or batch.replica.replica_id != event.replica_id or ongoing.is_cancelled:
            return
        if event.num_taken >= ongoing.num_fed.get(event.stream, 0):
            ongoing.starving.add(event.stream)
            if batch.replica.pool.queue.size:
                self._turn.touched[batch.replica.pool.program.name] = None
        self._release(ongoing.fed_blocks.get(event.stream), event.num_taken)
        self._restart_clock(batch, ongoing)
        self._turn.ended.append(InputTaken(batch.calls[0], event.stream, event.num_taken))

    def _release(self, fed: dict[int, list[BlockId]] | None, num_taken: int) -> None:
        """Releases the parts of a stream that a batch has read: their arrays are its own then."""
        for index in list(fed or ()):
            if index >= num_taken:
                return
            if fed is not None:
                self._leases.release(fed.pop(index))

    def cancel(self, batch: Batch) -> None:
        """Ends a batch that nothing needs. Its replica counts as busy with it until it has answered."""
        ongoing = batch.ongoing
        if ongoing is None or ongoing.is_cancelled:
            return
        ongoing.is_cancelled = True
        self._restart_clock(batch, ongoing)
        self._turn.actions.append(CancelBatch(batch.replica.replica_id, batch.batch_id))

    def restart(self, call: Call, pool: ReplicaPool) -> None:
        """Has a running call run again from its start. What it does now is cancelled."""
        if pool.ongoing is not None and (batch := pool.ongoing.pop(call, None)) is not None:
            self.give_up(batch)
            self._turn.ended.append(CallUnready(call))

    def give_up(self, batch: Batch) -> None:
        """Cancels a batch whose call runs again in another one. What still comes from it belongs to a call that nothing needs."""
        self.cancel(batch)
        call = batch.calls[0]
        call.feeds = ()
        other = Call(call.callee, (), (), call.segment)
        other.blocks = batch.blocks  # which it may still read
        other.withdraw()
        other.blocks = call.blocks  # which the batch may read until it ends
        other.is_suspect = call.is_suspect
        batch.calls = [other]

    # Time

    def _restart_clock(self, batch: Batch, ongoing: Ongoing) -> None:
        """Gives a batch its execution time again, from now on. The timer itself is set again only when it fires."""
        timeout_ns = int(batch.replica.pool.program.options.execution_timeout_s * 1e9)
        is_timed = ongoing.is_timed
        ongoing.due_ns = self._turn.now_ns + timeout_ns if is_timed else NEVER_NS
        if is_timed and batch.timeout is None:
            batch.timeout = self._timers.set(ongoing.due_ns, TimerKind.EXECUTION, batch.batch_id)

    def is_timely(self, batch: Batch) -> bool:
        """Returns whether a batch whose timer has fired may go on; sets another timer, if it is timed."""
        ongoing = batch.ongoing
        if ongoing is None or ongoing.due_ns <= self._turn.now_ns:
            return False
        is_timed = ongoing.due_ns < NEVER_NS
        batch.timeout = self._timers.set(ongoing.due_ns, TimerKind.EXECUTION, batch.batch_id) if is_timed else None
        return True


def _most(call: Call) -> int:
    """Returns how many parts a call may ever send: one more than its program allows, so that it comes to its end, or fails."""
    return call.callee.options.max_parts + 1


def _num_lent(batch: Batch) -> int:
    return 0 if batch.ongoing is None else batch.ongoing.num_lent
