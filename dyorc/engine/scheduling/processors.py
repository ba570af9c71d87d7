"""Cores that several programs share: whether one is free for a guess, and who would wait for it.

A replica with a device of its own delays only calls of its program. Replicas that run on the cores of one node compete: with
more batches than cores, each becomes slower. Certain calls run all the same, since the operating system shares cores fairly. A
guess without a free core would slow down the very batch that its decision waits for.
"""

from dyorc.engine.scheduling.latency import Rate

_MAX_UTILISATION = 0.9
"""More than this cannot be told from noise."""


class Processor:
    """The cores of a node.

    Args:
        num_cores: How many there are.

    Attributes:
        num_busy: Replicas that hold a batch; may exceed the number of cores.
        waiting: Programs with guesses that found no free core.
    """

    __slots__ = ("_arrivals", "_work", "num_busy", "num_cores", "waiting")

    def __init__(self, num_cores: int) -> None:
        self.num_cores = num_cores
        self.num_busy = 0
        self.waiting: list[str] = []
        self._arrivals = Rate()
        self._work = Rate()

    @property
    def has_room(self) -> bool:
        """Whether a core is free."""
        return self.num_busy < self.num_cores

    def use(self, num_calls: float, work_s: float, now_ns: int) -> None:
        """Books calls that run and take this much core time in all, in seconds; guesses count by their probability."""
        self._arrivals.add(num_calls, now_ns)
        self._work.add(work_s, now_ns)

    def delay_s(self, batch_s: float, now_ns: int) -> float:
        """Returns how much longer calls are expected to wait, in all, if a free core is busy this long, in seconds.

        What arrives meanwhile is late, and so is everything after it until a core is idle.
        """
        rate, work = self._arrivals.per_s(now_ns), self._work.per_s(now_ns)
        if rate is None or work is None:
            return 0.0
        utilisation = min(_MAX_UTILISATION, work / self.num_cores)
        return delay_s(batch_s, rate, self.num_cores, self.num_cores - self.num_busy) / (1 - utilisation)


def delay_s(busy_s: float, rate: float, num_servers: int, num_idle: int) -> float:
    """Returns how much longer calls are expected to wait, in all, if one of the idle servers is busy this long, in seconds.

    Args:
        rate: Calls per second.
    """
    num_arrivals = rate * busy_s
    # With other servers idle, a call waits only if enough others come first.
    return num_arrivals * busy_s / (2 * num_servers * num_servers) * min(1.0, num_arrivals / num_idle) ** (num_idle - 1)
