"""Replicas: what each holds, and when it will be free."""

from typing import TYPE_CHECKING

from dyorc.engine.scheduling.batches import Batch
from dyorc.engine.scheduling.latency import LatencyModel
from dyorc.engine.scheduling.processors import Processor

if TYPE_CHECKING:
    from dyorc.engine.scheduling.pools import ReplicaPool

NEVER_NS = 2**62


class Replica:
    """A copy of a program.

    Attributes:
        batches: What it holds, in the order in which it runs them.
        latency: T(n) of this replica.
        processor: The cores that it shares with others; None if it has a device of its own.
        is_leaving: Whether it will end soon: what it has is its last.
        prefetch_ns: When the next batch may be sent after it, so that it arrives as the running one ends.
    """

    __slots__ = ("batches", "is_leaving", "latency", "node", "pool", "prefetch_ns", "processor", "replica_id")

    def __init__(self, replica_id: str, node: str, pool: "ReplicaPool", processor: Processor | None = None) -> None:
        self.replica_id = replica_id
        self.node = node
        self.pool = pool
        self.processor = processor
        self.batches: dict[int, Batch] = {}
        self.latency = LatencyModel(prior=pool.latency)
        self.prefetch_ns = NEVER_NS
        self.is_leaving = False

    @property
    def has_core(self) -> bool:
        """Whether a core is free for it, if it needs one."""
        return self.processor is None or self.processor.has_room

    @property
    def running(self) -> Batch | None:
        """The batch that it runs, or that is on its way to it."""
        return next(iter(self.batches.values()), None)

    @property
    def expected_free_ns(self) -> int | None:
        """When it is expected to have returned everything it holds; None if it is idle or that is unknown."""
        last = next(reversed(self.batches.values()), None)
        return None if last is None else last.expected_ns
