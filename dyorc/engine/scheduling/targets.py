"""How many replicas of a program should take batches, and when one will if none does."""

from dyorc.engine.events import ReplicasWanted


class ReplicaTarget:
    """What the engine was told to expect of a program's replicas.

    Attributes:
        num_warm: How many replicas should take batches; None leaves that to those that join.
        lead_ns: How long it takes until one is ready; 0 if unknown.
        awaited_ns: Since when one is on its way: since one was wanted, or since the last one left.
        misplaced: Replicas that are parked before others.
        is_off: Whether there are to be none, by order of a person.
    """

    __slots__ = ("awaited_ns", "is_off", "lead_ns", "misplaced", "num_warm")

    def __init__(self) -> None:
        self.num_warm: int | None = None
        self.lead_ns = 0
        self.awaited_ns = 0
        self.misplaced: tuple[str, ...] = ()
        self.is_off = False

    def set(self, event: ReplicasWanted, now_ns: int) -> None:
        """Takes in how many replicas are wanted."""
        if event.num_warm and not self.num_warm:
            self.awaited_ns = now_ns
        self.num_warm = event.num_warm
        self.lead_ns = int(event.lead_s * 1e9)
        self.misplaced = event.misplaced
        self.is_off = event.is_order and not event.num_warm

    def ready_ns(self, now_ns: int) -> int:
        """Returns when a replica takes batches at the earliest, if none does now; `now_ns` if unknown."""
        if not self.num_warm:  # somebody has to ask for one first
            return now_ns + self.lead_ns
        return max(now_ns, self.awaited_ns + self.lead_ns)
