"""Cores that several programs share: whether one is free for a guess, and how much that guess would delay other calls.

A replica with its own device delays only calls of its program. Replicas that run on the cores of one node compete: with
more batches than cores, each becomes slower. Certain calls run all the same, since the operating system shares cores fairly. A
guess without a free core would slow down the very batch that its decision waits for.

Even a free core has a cost. Cores share caches, memory and clock rate, may be two threads of one core, or a part of what a
container may use, and something else may be running on them. So how much batches slow each other down is measured.
"""

import math

from dyorc.engine.estimators import Rate, queueing_delay_s

_MAX_UTILISATION = 0.9
"""More than this cannot be distinguished from noise."""
_MEMORY_S = 5.0
"""How much batch time is remembered."""
_LEAST_EVIDENCE_S = 0.05
"""The least spread, in batch time, of the number of other batches from which a slowdown is concluded."""


class Slowdown:
    """By which fraction a batch takes longer for each other batch that runs at the same time, learned while serving.

    A line through (other batches, time relative to T(n)), by least squares, weighted by time and forgotten exponentially.
    """

    __slots__ = ("_tx", "_w", "_wt", "_wx", "_wxx")

    def __init__(self) -> None:
        self._w = self._wx = self._wxx = self._wt = self._tx = 0.0

    def observe(self, num_others: float, expected_s: float, took_s: float) -> None:
        """Learns how long a batch took together with so many others, on average, and how long T(n) says."""
        keep = math.exp(-expected_s / _MEMORY_S)
        self._w = self._w * keep + expected_s
        self._wx = self._wx * keep + expected_s * num_others
        self._wxx = self._wxx * keep + expected_s * num_others * num_others
        self._wt = self._wt * keep + took_s
        self._tx = self._tx * keep + took_s * num_others

    @property
    def value(self) -> float:
        """From 0, no slower, to 1: two batches at once take as long as one after the other. 0 while too little is known."""
        if not self._w:
            return 0.0
        evidence_s = self._wxx - self._wx * self._wx / self._w
        if evidence_s < _LEAST_EVIDENCE_S:
            return 0.0
        slope = (self._tx - self._wt * self._wx / self._w) / evidence_s
        alone = (self._wt - slope * self._wx) / self._w
        return min(1.0, max(0.0, slope / alone)) if alone > 0 else 1.0


class Processor:
    """The cores of a node.

    Args:
        num_cores: How many there are.

    Attributes:
        busy: The ids of the replicas that hold a batch, which may be more than the cores, in the order in which they began.
        slowdown: How much batches slow each other down.
        waiting: Programs with guesses that found no free core.
    """

    __slots__ = ("_arrivals", "_busy_ns", "_changed_ns", "_work", "busy", "num_cores", "slowdown", "waiting")

    def __init__(self, num_cores: int) -> None:
        self.num_cores = num_cores
        self.busy: dict[str, None] = {}
        self.slowdown = Slowdown()
        self.waiting: list[str] = []
        self._arrivals = Rate()
        self._work = Rate()
        self._busy_ns = 0
        self._changed_ns = 0

    @property
    def has_room(self) -> bool:
        """Whether a core is free."""
        return len(self.busy) < self.num_cores

    def enter(self, replica_id: str, now_ns: int) -> None:
        """Adds a replica that holds a batch now."""
        self._count(now_ns)
        self.busy[replica_id] = None

    def leave(self, replica_id: str, now_ns: int) -> None:
        """Removes a replica that has returned all its batches."""
        self._count(now_ns)
        del self.busy[replica_id]

    def _count(self, now_ns: int) -> None:
        self._busy_ns, self._changed_ns = self.busy_ns(now_ns), now_ns

    def busy_ns(self, now_ns: int) -> int:
        """Returns for how long replicas have been busy, summed over all of them."""
        return self._busy_ns + len(self.busy) * (now_ns - self._changed_ns)

    def learn(self, started_ns: int, busy_ns: int, expected_s: float, took_s: float, now_ns: int) -> None:
        """Learns from the time of a batch that has just ended.

        If on average at least one batch more than there are cores ran, the batches took turns and the time says nothing.

        Args:
            busy_ns: What `busy_ns` was when the batch started.
        """
        if now_ns <= started_ns:
            return
        num_others = (self.busy_ns(now_ns) - busy_ns) / (now_ns - started_ns) - 1
        if num_others < self.num_cores:
            self.slowdown.observe(max(0.0, num_others), expected_s, took_s)

    def use(self, num_calls: float, work_s: float, now_ns: int) -> None:
        """Books calls that run and take this much core time in all, in seconds; guesses count by their probability."""
        self._arrivals.add(num_calls, now_ns)
        self._work.add(work_s, now_ns)

    def delay_s(self, batch_s: float, now_ns: int) -> float:
        """Returns how much longer calls are expected to wait, in all, if a free core is busy this long, in seconds.

        What arrives meanwhile is late, and so is everything after it until a core is idle.
        """
        rate = self._arrivals.per_s(now_ns)
        if rate is None:
            return 0.0
        num_idle = max(1, self.num_cores - len(self.busy))
        return queueing_delay_s(batch_s, rate, self.num_cores, num_idle) / (1 - self.utilisation(now_ns))

    def utilisation(self, now_ns: int) -> float:
        """Returns which part of the cores' time goes to calls that are needed."""
        work = self._work.per_s(now_ns)
        return 0.0 if work is None else min(_MAX_UTILISATION, work / self.num_cores)
