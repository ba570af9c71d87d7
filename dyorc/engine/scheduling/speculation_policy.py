"""Which guesses run: for each batch, weighs the time a call saves by running ahead of its decision against its expected cost
for others.

A batch of n calls takes T(n) = b + a*n. A guess that joins a batch which runs anyway delays every call in the batch by `a`, and
every call that comes to wait for it or for its core. A batch of guesses alone on an idle replica takes T(n) from calls that
arrive meanwhile and find no other idle replica, or no core (`scheduling/processors.py`), and has to be sent and received. All
this counts only if the guess is wrong: a right one would have taken the time later. Right or wrong, it slows down what runs at
the same time on the same cores, by as much as was measured; often this is what the decision waits for.

Source: the expected-value rule with failure-weighted cost; the delay by a busy replica is the mean residual time of arrivals at
rate r, r*T*T/2 for one replica, divided by the square of the number of replicas that take turns.
"""

from collections.abc import Mapping, Sequence

from dyorc.authoring.workflow import Workflow
from dyorc.engine.estimators import Average
from dyorc.engine.guessing.speculation import Speculator
from dyorc.engine.model.futures import PENDING, Future
from dyorc.engine.model.program_call import Call, CallState
from dyorc.engine.model.speculation_budget import Bet
from dyorc.engine.scheduling.lanes import Lanes
from dyorc.engine.scheduling.processors import Processor
from dyorc.engine.scheduling.replica_pools import ReplicaPool
from dyorc.engine.scheduling.replicas import Replica

_NS_PER_S = 1e9
_MAX_LINKS = 16
"""Links of a chain of waiting calls that are followed."""


class GuessAppraiser:
    """Says how likely a guess is to be needed, and when values are expected: by what runs now and how long things took before.

    Args:
        pools: Programs by name; they learn how long a call of each takes.
    """

    def __init__(self, pools: Mapping[str, ReplicaPool]) -> None:
        self._pools = pools
        self._task_ns: dict[Workflow, Average] = {}

    def task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        """Learns how long a task took."""
        average = self._task_ns.get(workflow)
        if average is None:
            average = self._task_ns[workflow] = Average()
        average.add(duration_ns)

    def forget(self, workflow: Workflow) -> None:
        """Forgets a workflow that is no longer served."""
        self._task_ns.pop(workflow, None)

    def expected_ns(self, future: Future, now_ns: int) -> int:
        """Returns when the value of a future is expected, not before now. What has never ended counts as taking no time."""
        return self._expected_ns(future, now_ns, _MAX_LINKS, {})

    def _expected_ns(self, future: Future, now_ns: int, max_links: int, known: dict[Future, int]) -> int:
        if future in known:
            return known[future]
        producer = future.producer
        if future.state is not PENDING or producer is None:
            return now_ns
        if not isinstance(producer, Call):
            average = self._task_ns.get(producer.callee)
            return now_ns if average is None else max(now_ns, producer.started_ns + int(average.value))
        if producer.state is not CallState.WAITING:
            return max(now_ns, producer.expected_ns)
        start_ns = now_ns
        if max_links:
            for argument in producer.arguments:
                start_ns = max(start_ns, self._expected_ns(argument.future, now_ns, max_links - 1, known))
        known[future] = start_ns + int(self._pools[producer.callee.name].sojourn_ns.value)
        return known[future]

    def appraise(self, call: Call, now_ns: int) -> tuple[float, int]:
        """Returns the probability that a call will be needed, and when the last decision it depends on is expected."""
        probability, known_ns = 1.0, now_ns
        for point, outcome in call.segment.open_points():
            probability *= point.probabilities.get(outcome, 0.0)
            for ref in point.decision.refs:
                known_ns = max(known_ns, self.expected_ns(ref.future, now_ns))
        return probability, known_ns


class SpeculationPolicy:
    """Picks guesses for batches.

    Args:
        replicas: All replicas by id.
        margin: A guess must save this many times its expected cost.
    """

    def __init__(self, speculator: Speculator, appraiser: GuessAppraiser, replicas: Mapping[str, Replica], margin: float) -> None:
        self._speculator = speculator
        self._appraiser = appraiser
        self._replicas = replicas
        self._margin = margin

    def fill(
        self,
        pool: ReplicaPool,
        guesses: Lanes,
        replica: Replica | None,
        calls: list[Call],
        max_size: int,
        start_ns: int,
        now_ns: int,
    ) -> None:
        """Adds guesses to a batch of certain calls that starts at `start_ns`, as long as that pays.

        Args:
            guesses: The program's that may run there.
            replica: The replica that takes the batch, if it is not idle, or if it can be no other.
        """
        line = pool.latency.line if pool.max_cost is None else pool.line_of(calls[0].cost)
        rate = pool.demand.per_s(now_ns)
        key = calls[0].batch_key
        if line is None or rate is None or guesses.peek(key) is None:
            return
        base_s, item_s = line
        batch_s = base_s + item_s * len(calls)
        # A call that misses this batch waits for the next one, at least until another replica is free.
        next_ns = start_ns if pool.num_idle > 1 else pool.next_free_ns(start_ns + int(batch_s * _NS_PER_S), replica)
        num_delayed = len(calls) + rate * batch_s / len(pool.replicas)
        # Which idle replica takes the batch depends on all of its calls; here any of them will do.
        processor = (replica or next(iter(pool.replicas.values()))).processor
        delay_s = 0.0 if processor is None else processor.delay_s(batch_s, now_ns)
        while len(calls) < max_size and (call := guesses.peek(key)) is not None:
            probability, known_ns = self._appraiser.appraise(call, now_ns)
            saved_s = _saved_s(start_ns, batch_s, max(known_ns, next_ns), batch_s, known_ns)
            longer_s = 0.0 if processor is None else processor.delay_s(batch_s + item_s, now_ns)
            bet = Bet(probability, saved_s, batch_s / len(calls), item_s * num_delayed + (longer_s - delay_s))
            if not bet.pays(self._margin) or not self._place(call, bet):
                return
            guesses.pop(key)
            calls.append(call)
            num_delayed += probability
            batch_s += item_s
            delay_s = longer_s

    def form_batch(self, pool: ReplicaPool, guesses: Lanes, replica: Replica, max_size: int, now_ns: int) -> list[Call]:
        """Returns a batch of those guesses that may run on an idle replica; empty if that does not pay."""
        line, rate, first = pool.latency.line, pool.demand.per_s(now_ns), guesses.peek()
        if first is not None and pool.max_cost is not None:
            line = pool.line_of(first.cost)
        if line is None or rate is None or first is None:
            return []
        terms = _Terms(pool, replica, self._replicas, line, rate, now_ns)
        candidates: list[Call] = []
        bets: list[_BetAlone] = []
        size = guesses.count_next(max_size)
        while len(candidates) < size and (call := guesses.peek(first.batch_key)) is not None:
            bet = _BetAlone(*self._appraiser.appraise(call, now_ns))
            terms.apply(bet, size)
            while not bet.pays(self._margin) and not candidates and size > 1:
                size //= 2  # fewer take less time
                terms.apply(bet, size)
            if not bet.pays(self._margin):
                break
            guesses.pop(first.batch_key)
            candidates.append(call)
            bets.append(bet)
        size = self._size_that_pays(bets, terms)
        waste_s = sum(bet.waste_s for bet in bets[:size])
        if not all(self._speculator.can_bet(call, waste_s) for call in candidates[:size]):
            size = 0
        for call, bet in zip(candidates[:size], bets, strict=False):
            self._speculator.place(call, bet)
        for call in candidates[size:]:
            guesses.add(call)
        return candidates[:size]

    def _size_that_pays(self, bets: Sequence["_BetAlone"], terms: "_Terms") -> int:
        """Returns how many of the guesses make a batch that pays for each of them. The fewer there are, the more each costs."""
        size = len(bets)
        while size:
            for bet in bets[:size]:
                terms.apply(bet, size)
            num_paying = next((at for at, bet in enumerate(bets[:size]) if not bet.pays(self._margin)), size)
            if num_paying == size:
                break
            size = num_paying
        return size

    def _place(self, call: Call, bet: Bet) -> bool:
        """Places a bet if the budgets allow it."""
        if not self._speculator.can_bet(call, bet.waste_s):
            return False
        self._speculator.place(call, bet)
        return True


class _BetAlone(Bet):
    """A bet in a batch of guesses alone.

    Attributes:
        known_ns: When it is expected to be known whether the call is needed.
    """

    __slots__ = ("known_ns",)

    def __init__(self, probability: float, known_ns: int) -> None:
        super().__init__(probability, 0.0)
        self.known_ns = known_ns


class _Terms:
    """What a guess saves and costs in a batch of guesses alone that starts now."""

    def __init__(
        self,
        pool: ReplicaPool,
        replica: Replica,
        replicas: Mapping[str, Replica],
        line: tuple[float, float],
        rate: float,
        now_ns: int,
    ) -> None:
        self._pool = pool
        self._replica = replica
        self._replicas = replicas
        self._line = line
        self._rate = rate
        self._now_ns = now_ns
        self._size = 0
        self._shares = (0.0, 0.0, 0.0)

    def apply(self, bet: _BetAlone, size: int) -> None:
        """Writes into a bet what it saves and costs if the batch has this many calls.

        Without the bet, the call would run once the decision is taken, with those of the others that are needed, taken to be as
        likely as itself.
        """
        if size != self._size:  # guesses of one batch have equal shares
            self._size, self._shares = size, self._shares_of(size)
        bet.share_s, bet.price_s, bet.slows_s = self._shares
        base_s, item_s = self._line
        needed_s = base_s + item_s * max(1.0, bet.probability * size)
        bet.saved_s = _saved_s(self._now_ns, base_s + item_s * size, bet.known_ns, needed_s, bet.known_ns)

    def _shares_of(self, size: int) -> tuple[float, float, float]:
        processor = self._replica.processor
        batch_s = self._line[0] + self._line[1] * size
        price_s = self._pool.price_of_guesses_s(self._replica, batch_s, self._rate, self._now_ns)
        longer_s = 0.0 if processor is None else slows_s(processor, self._replicas, batch_s, self._now_ns)
        return batch_s / size, price_s / size, longer_s / size


def slows_s(processor: Processor, replicas: Mapping[str, Replica], batch_s: float, now_ns: int) -> float:
    """Returns how much later calls are expected to end, in all, if one more batch runs this long, in seconds.

    Those are running calls, where guesses count by their probability, calls that wait to run next in their place, and what
    comes after them until a core is idle.

    Args:
        replicas: All replicas by id.
    """
    slowdown = processor.slowdown.value
    if not slowdown:
        return 0.0
    shared_s = 0.0
    for replica_id in processor.busy:
        replica = replicas[replica_id]
        running, pool = replica.running, replica.pool
        if running is None or running.expected_ns is None:
            continue
        rest_s = min(batch_s, max(0.0, (running.expected_ns - now_ns) / 1e9))
        shared_s += rest_s * sum([1 if call.bet is None else call.bet.probability for call in running.calls])
        shared_s += (batch_s - rest_s) * min(pool.queue.size, pool.program.options.max_batch_size)
    return slowdown * shared_s / (1 - processor.utilisation(now_ns))


def _saved_s(start_ns: int, batch_s: float, otherwise_ns: int, otherwise_s: float, known_ns: int) -> float:
    """Returns how much sooner a call ends, in seconds, if it starts at `start_ns` in a batch that takes `batch_s`, instead of at
    `otherwise_ns` in one that takes `otherwise_s`. A result that is there before the decision, at `known_ns`, waits for it."""
    sooner_s = (otherwise_ns - start_ns) / _NS_PER_S - (batch_s - otherwise_s)
    return min(sooner_s, (otherwise_ns - known_ns) / _NS_PER_S + otherwise_s)
