"""One program's queue and replicas: which of them gets the next batch, and when."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from dyorc.authoring.call_style import CallStyle
from dyorc.authoring.program import Program
from dyorc.config import EngineConfig
from dyorc.engine.engine_statistics import ModelRecord
from dyorc.engine.estimators import Average, Rate, queueing_delay_s
from dyorc.engine.events import ReplicasWanted
from dyorc.engine.interfaces import Load
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.scheduling.bound_calls import BoundCalls
from dyorc.engine.scheduling.lanes import Lanes
from dyorc.engine.scheduling.latency import LatencyModel, LeastLatency, LoopRatio, MeanCost
from dyorc.engine.scheduling.queues import CallQueue
from dyorc.engine.scheduling.replicas import NEVER_NS, Batch, Replica
from dyorc.engine.scheduling.resident_growth import ResidentGrowth
from dyorc.engine.scheduling.suspects import SuspectQueue
from dyorc.engine.timers import Timer
from dyorc.errors import DyOrcError

_STALE_NS = 1_000_000_000
"""After this long without a batch, what is known of a program's speed is no reason to refuse work."""

_NUM_LOOKED_AT = 64
_LEAST_PRICE = 1e-6
"""Of a slot: a tenant whose calls cost nothing moves on all the same, or nobody else would have a turn."""


class ReplicaTarget:
    """How many replicas a program should have, as `ReplicasWanted` set it.

    Attributes:
        num_warm: How many replicas should take batches; None: all that join.
        lead_ns: How long it takes until one is ready; 0 if unknown.
        awaited_ns: Since when one is on its way: since one was wanted, or since the last one left.
        misplaced: Replicas that are parked before others.
        is_off: Whether a person has scaled the program to zero.
    """

    __slots__ = ("awaited_ns", "is_off", "lead_ns", "misplaced", "num_warm")

    def __init__(self) -> None:
        self.num_warm: int | None = None
        self.lead_ns = 0
        self.awaited_ns = 0
        self.misplaced: tuple[str, ...] = ()
        self.is_off = False

    def set(self, event: ReplicasWanted, now_ns: int) -> None:
        """Sets how many replicas are wanted."""
        if event.num_warm and not self.num_warm:
            self.awaited_ns = now_ns
        self.num_warm = event.num_warm
        self.lead_ns = int(event.lead_s * 1e9)
        self.misplaced = event.misplaced
        self.is_off = event.is_order and not event.num_warm

    def ready_ns(self, now_ns: int) -> int:
        """Returns when a replica takes batches at the earliest, if none does now; `now_ns` if unknown."""
        if not self.num_warm:  # one has to be wanted first
            return now_ns + self.lead_ns
        return max(now_ns, self.awaited_ns + self.lead_ns)


class ReplicaPool:
    """A program with its queue and its replicas.

    Attributes:
        record: Where its calls are counted.
        queue: Calls that are certain.
        suspects: Calls that may have crashed a replica, until they may run.
        guesses: Calls that may turn out not to be needed.
        target: How many replicas there should be.
        replicas: Replicas that are ready and take batches, by id.
        draining: Surplus replicas, which finish their batches and take no more.
        num_replicas_on: How many replicas take batches, by node.
        idle: Replicas that hold no batch, by node; the longest idle first. If batches run side by side, those with room for one.
        ongoing: The batch of each running call, if batches run side by side; None for programs that neither wait nor yield.
        max_cost: What the calls of a batch may cost together; None if the program declares no cost of a call.
        latency: T(n); over the cost of a batch, if the program declares one.
        mean_cost: What a call costs on average.
        link_ns: What a batch takes beyond the program's own time.
        lateness_ns: How much later than expected batches come back; early ones count as punctual.
        last_done_ns: When a batch last came back.
        sojourn_ns: How long a call takes once its inputs are there.
        loop_ratio: How many calls follow from each that ends.
        demand: Calls that run per second; guesses count by their probability.
        foreseen: Calls that will be ready: when, by which batch, how many; the next one first.
        last_free_ns: When the last of the busy replicas is expected to be free.
        held_until_ns: Until when an idle replica waits for them.
        held_since_ns: Since when it waits.
        num_when_held: Calls that were ready then.
        load_error: Why no replica can load the program; None if one can.
        num_starved: Batches that failed for want of memory since the last one that ran.
        has_process: Whether its replicas share processes with others, or hold residents there.
        growth: What its residents come to.
        no_room_ns: When a call last waited because no process had room for its resident; 0: never.
        bound: Calls that wait for a process, by its name; the other queues hold calls that can run anywhere.
    """

    def __init__(self, program: Program, record: ModelRecord, config: EngineConfig) -> None:
        self.program = program
        self.record = record
        self.max_cost = program.options.max_batch_cost
        self.queue = CallQueue(self.slot_price)
        max_wait_ns = int(config.max_suspect_wait_s * 1e9)
        self.suspects = SuspectQueue(self.queue, self.queue_of, program.options.bounds.max_replicas, max_wait_ns)
        self.guesses = Lanes(CallState.GUESSED, Call.guess)
        self.has_process = program.shares_process
        self.growth = ResidentGrowth()
        self.no_room_ns = 0
        self.bound: dict[str, BoundCalls] = {}
        self.latency = LatencyModel()
        self.mean_cost = MeanCost()
        self.least_latency = LeastLatency(self.latency)
        self.last_done_ns = 0
        self.link_ns = Average()
        self.lateness_ns = Average()
        self.sojourn_ns = Average()
        self.loop_ratio = LoopRatio()
        self.demand = Rate()
        self.foreseen: list[tuple[int, int, float]] = []
        self.last_free_ns = 0
        self.held_until_ns = self.held_since_ns = 0
        self.num_when_held = 0
        self.target = ReplicaTarget()
        self.replicas: dict[str, Replica] = {}
        self.draining: dict[str, Replica] = {}
        self.num_replicas_on: dict[str, int] = {}
        self.idle: dict[str, dict[str, Replica]] = {}
        self.num_idle = 0
        self.max_ongoing = program.max_ongoing
        self.ongoing: dict[Call, Batch] | None = {} if program.style is not CallStyle.PLAIN else None
        self.num_load_failures = 0
        self.num_starved = 0
        self.load_error: DyOrcError | None = None
        self.timer: Timer | None = None
        self._max_in_flight = config.max_in_flight_batches
        self._prefetchable: list[tuple[int, str]] = []

    def add(self, replica: Replica) -> None:
        """Adds a replica that is ready and holds no batch."""
        self._enter(replica)
        self.set_idle(replica)

    def _enter(self, replica: Replica) -> None:
        self.replicas[replica.replica_id] = replica
        self.num_replicas_on[replica.node] = self.num_replicas_on.get(replica.node, 0) + 1

    def drain(self, replica: Replica) -> None:
        """Lets a replica finish its batches, and gives it no more."""
        self.remove(replica)
        self.draining[replica.replica_id] = replica

    def resume(self, replica: Replica, prefetch_ns: int) -> None:
        """Gives a draining replica, which still runs a batch, batches again; the next one at `prefetch_ns`."""
        del self.draining[replica.replica_id]
        self._enter(replica)
        self.set_busy(replica, prefetch_ns)

    def remove(self, replica: Replica) -> None:
        """Removes a replica that is gone or takes no more batches."""
        if self.draining.pop(replica.replica_id, None) is not None:
            return
        del self.replicas[replica.replica_id]
        self.num_replicas_on[replica.node] -= 1
        if not self.num_replicas_on[replica.node]:
            del self.num_replicas_on[replica.node]
        if not self.replicas:
            self.clear_load_failures()  # failures while another replica worked do not predict the next attempt
        self.leave_idle(replica)
        replica.prefetch_ns = NEVER_NS

    def clear_load_failures(self) -> None:
        """Forgets failed loads: the next attempt is the first."""
        self.num_load_failures = 0
        self.load_error = None

    def set_idle(self, replica: Replica) -> None:
        """Marks a replica as idle."""
        if replica.process is not None and replica.replica_id in self.idle.get(replica.node, ()):
            return
        self.idle.setdefault(replica.node, {})[replica.replica_id] = replica
        self.num_idle += 1
        replica.prefetch_ns = NEVER_NS

    def set_busy(self, replica: Replica, prefetch_ns: int) -> None:
        """Marks a replica as busy; it may be sent another batch at `prefetch_ns`. If batches run side by side, it counts as idle
        while it has room for another."""
        self.leave_idle(replica)
        if self.ongoing is not None:
            if len(replica.batches) < self.max_ongoing:
                self.set_idle(replica)
            return
        if len(replica.batches) < self._max_in_flight:
            replica.prefetch_ns = prefetch_ns
            heapq.heappush(self._prefetchable, (prefetch_ns, replica.replica_id))
            if len(self._prefetchable) > 2 * len(self.replicas) + 64:
                # Outdated entries leave when they reach the top; a program with spare replicas never looks there.
                self._prefetchable = [(r.prefetch_ns, r.replica_id) for r in self.replicas.values() if r.prefetch_ns != NEVER_NS]
                heapq.heapify(self._prefetchable)
        else:
            replica.prefetch_ns = NEVER_NS

    def leave_idle(self, replica: Replica) -> None:
        """Marks a replica as no longer idle, if it is."""
        here = self.idle.get(replica.node)
        if here is not None and here.pop(replica.replica_id, None) is not None:
            self.num_idle -= 1
            if not here:
                del self.idle[replica.node]

    def bound_to(self, process: str) -> BoundCalls:
        """Returns the calls that wait for a process."""
        bound = self.bound.get(process)
        if bound is None:
            bound = self.bound[process] = BoundCalls(self.slot_price)
        return bound

    def queue_of(self, call: Call) -> CallQueue:
        """Returns the queue of a certain call."""
        return self.bound_to(call.process).queue if call.process else self.queue

    def guesses_of(self, call: Call) -> Lanes:
        """Returns the queue of a guess."""
        return self.bound_to(call.process).guesses if call.process else self.guesses

    def unbind(self, process: str) -> list[Call]:
        """Takes out the calls that wait for a process. The caller sets their new state."""
        bound = self.bound.pop(process, None)
        return [] if bound is None else [*bound.queue.take_all(), *bound.guesses.take_out(lambda _: True)]

    def queues(self) -> list[CallQueue]:
        """Returns all queues of certain calls."""
        return [self.queue, *(bound.queue for bound in self.bound.values())] if self.bound else [self.queue]

    def queues_of_guesses(self) -> list[Lanes]:
        """Returns all queues of guesses."""
        return [self.guesses, *(bound.guesses for bound in self.bound.values())] if self.bound else [self.guesses]

    @property
    def num_queued(self) -> int:
        """How many certain calls wait."""
        return sum([queue.size for queue in self.queues()]) if self.bound else self.queue.size

    def release_suspect(self, now_ns: int, *, is_stuck: bool = False) -> None:
        """Lets the next suspect call run, unless another one runs or its time has not come. Cost: looks at all replicas."""
        if not self.runs_suspect:
            is_safe = not self.has_process or self._is_harmless()
            self.suspects.release(len(self.replicas), self.num_idle, now_ns, is_safe=is_safe, is_stuck=is_stuck)

    def _is_harmless(self) -> bool:
        """Returns whether the next suspect can run in a process that holds residents of suspects only: all others would lose
        theirs. Cost: looks at all residents."""
        call = next(iter(self.suspects))
        for here in self.idle.values():
            for replica in here.values():
                process = replica.process
                if process is not None and call.process in ("", process.name):
                    others = process.replicas.values()
                    tried = {each.segment.task.request for other in others for each in other.pool.suspects}
                    if process.requests() <= tried:
                        return True
        return False

    @property
    def runs_suspect(self) -> bool:
        """Whether a suspect call runs, or is about to. Cost: looks at all replicas."""
        return any(queue.has_suspect for queue in self.queues()) or any(batch.calls[0].is_suspect for batch in self._batches())

    def _batches(self) -> Iterator[Batch]:
        """Yields the batches in flight."""
        for replica in (*self.replicas.values(), *self.draining.values()):
            yield from replica.batches.values()

    def soonest_prefetch(self) -> Replica | None:
        """Returns the busy replica that may be sent another batch soonest; its `prefetch_ns` says when."""
        while self._prefetchable:
            prefetch_ns, replica_id = self._prefetchable[0]
            replica = self.replicas.get(replica_id)
            if replica is not None and replica.prefetch_ns == prefetch_ns:
                return replica
            heapq.heappop(self._prefetchable)
        return None

    def next_free_ns(self, otherwise_ns: int, but: Replica | None = None) -> int:
        """Returns when a busy replica other than `but` can be sent a batch at the earliest, at most `otherwise_ns`."""
        replica = self.soonest_prefetch()
        if replica is not None and replica is but:
            first = heapq.heappop(self._prefetchable)
            replica = self.soonest_prefetch()
            heapq.heappush(self._prefetchable, first)
        return otherwise_ns if replica is None else min(replica.prefetch_ns, otherwise_ns)

    def max_size(self, cost: float) -> int:
        """Returns how many calls of this cost a batch may have; 1 if even one exceeds the limit."""
        size, max_cost = self.program.options.max_batch_size, self.max_cost
        if max_cost is None or cost * size <= max_cost:
            return size
        size = int(max_cost / cost)
        return max(1, size - (size * cost > max_cost))

    def line_of(self, cost: float) -> tuple[float, float] | None:
        """Returns (b, a) of T(n) = b + a*n seconds for batches of n calls of this cost; None before the first batch."""
        line = self.latency.line
        return line if line is None or self.max_cost is None else (line[0], line[1] * cost)

    def earliest_end_ns(self, replica: Replica | None, size: float, now_ns: int) -> int:
        """Returns when a batch of this size (or cost), formed now, will be back at the earliest; 0 if too little is known to
        refuse work.

        The link varies more than programs do, and its average follows the slowest; rely on half of it.

        Args:
            replica: The one that takes the batch; None if it is idle.
        """
        batch_s = None if self.program.is_streaming else self.least_latency.predict(size)  # parts are of use before the end
        if batch_s is None or (self.num_idle == len(self.replicas) and now_ns - self.last_done_ns > _STALE_NS):
            return 0
        if replica is None or replica.expected_free_ns is None:
            return now_ns + int(self.link_ns.value / 2 + batch_s * 1e9)
        wait_ns = max(0, replica.expected_free_ns - now_ns)
        return now_ns + int(self.least_latency.pace * wait_ns + batch_s * 1e9)

    def load(self) -> Load:
        """Returns what there is to do. Cost: looks at all replicas."""
        num_running = sum([len(batch.calls) for batch in self._batches()])
        cost = self.mean_cost.value
        num_queued = self.num_queued + len(self.suspects)
        return Load(num_queued, num_running, self.line_of(cost), self.max_size(cost), self.waiting_bytes())

    def report(self) -> dict[str, Any]:
        """Returns the queues and costs, as plain values; costs are None before the first batch."""
        line = self.line_of(self.mean_cost.value)
        return {
            "num_queued": self.num_queued,
            "num_guesses_queued": sum([guesses.size for guesses in self.queues_of_guesses()]),
            "num_suspects": len(self.suspects),
            "batch_base_ms": None if line is None else round(line[0] * 1e3, 4),
            "batch_item_ms": None if line is None else round(line[1] * 1e3, 4),
        }

    def take_all(self) -> list[Call]:
        """Removes and returns all calls that have not been sent. The caller sets their new state."""
        calls = [call for queue in self.queues() for call in queue.take_all()]
        calls += self.suspects.take_out(_any)
        return calls + [call for guesses in self.queues_of_guesses() for call in guesses.take_out(_any)]

    def slot_price(self, size: int, cost: float) -> float:
        """Returns a call's share of the time of a batch of `size` calls like it, T(n)/n, relative to a full batch; 1 if unknown.

        Args:
            cost: Of the call.
        """
        full, line = self.program.options.max_batch_size, self.latency.line
        full_s = 0.0 if line is None else line[0] + line[1] * (full if self.max_cost is None else self.max_cost)
        if line is None or not full_s:
            return 1.0
        return max(_LEAST_PRICE, (line[0] / size + line[1] * cost) / (full_s / full))

    def price_of_guesses_s(self, replica: Replica, batch_s: float, rate: float, now_ns: int) -> float:
        """Returns how many seconds longer other calls are expected to wait, in all, if an idle replica runs a batch of guesses
        this long.

        The batch delays either other calls of the program or other programs that share its cores. In any case it has to be sent
        and received instead of something needed, which takes about one link time.

        Args:
            rate: Calls per second.
        """
        link_s = max(0.0, self.link_ns.value / 1e9)
        price_s = queueing_delay_s(batch_s, rate, len(self.replicas), self.num_idle)
        if replica.processor is not None:
            price_s = max(price_s, replica.processor.delay_s(batch_s + link_s, now_ns))
        return price_s + link_s

    def idle_with_core(self) -> Replica | None:
        """Returns an idle replica with a free core. Without one, returns None, and the program's guesses wait for cores."""
        firsts = [next(iter(here.values())) for here in self.idle.values()]
        for replica in firsts:
            if replica.has_core:
                return replica
        for replica in firsts:
            self.await_core(replica)
        return None

    def await_core(self, replica: Replica) -> None:
        """Lets the program's guesses wait until a core is free for a replica."""
        if replica.processor is not None and self.program.name not in replica.processor.waiting:
            replica.processor.waiting.append(self.program.name)

    def drain_s(self) -> float:
        """Estimates how long the queue will take, in seconds, at least 0.1."""
        cost = self.mean_cost.value
        size = self.max_size(cost)
        batch_s = self.latency.predict(size * cost) or 1.0
        return max(0.1, round(batch_s * self.queue.size / size / max(1, len(self.replicas)), 3))

    def waiting_bytes(self) -> Counter[str]:
        """Returns how many bytes of the inputs of waiting calls, at most 64 of them, each node holds."""
        return _bytes_by_node(islice(self.queue, _NUM_LOOKED_AT))

    def nearest_idle(self, calls: Sequence[Call]) -> Replica:
        """Returns the idle replica on the node that holds most of the input bytes; without such a node, the longest idle.

        Cost: proportional to the inputs, not to the replicas.
        """
        nodes = self.idle
        if self.ongoing is not None:
            return min((replica for here in nodes.values() for replica in here.values()), key=lambda r: len(r.batches))
        if len(nodes) == 1:
            return next(iter(next(iter(nodes.values())).values()))
        num_bytes = _bytes_by_node(calls)
        return next(iter(nodes[max(nodes, key=num_bytes.__getitem__)].values()))


def _any(call: Call) -> bool:
    return True


def _bytes_by_node(calls: Iterable[Call]) -> Counter[str]:
    """Returns how many bytes of the inputs of calls each node holds."""
    num_bytes = Counter[str]()
    for call in calls:
        for tensor in call.operands:
            num_bytes[tensor.node] += tensor.num_bytes
    return num_bytes
