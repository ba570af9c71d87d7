"""Replicas and their batches: what each replica holds, and when it will be free."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from dyorc.core.tensor import BlockId
from dyorc.engine.actions import FormReason
from dyorc.engine.model.program_call import Call
from dyorc.engine.request_trace import BatchTrace
from dyorc.engine.scheduling.latency import LatencyModel
from dyorc.engine.scheduling.processors import Processor
from dyorc.engine.timers import Timer

if TYPE_CHECKING:
    from dyorc.engine.scheduling.processes import Process
    from dyorc.engine.scheduling.replica_pools import ReplicaPool

NEVER_NS = 2**62


class FormedBatch(msgspec.Struct, frozen=True, gc=False):
    """Calls to be sent to a replica."""

    replica: "Replica"
    calls: list[Call]
    reason: FormReason


class Ongoing:
    """What is known of a batch that waits or yields, while it runs (`dyorc.engine.scheduling.ongoing`).

    Attributes:
        num_parts: Parts that it has sent.
        max_parts: How many it may send; 0 if it does not yield.
        due_ns: When its replica counts as hung; `NEVER_NS` while it has no credit.
        since_ns: Since when it works on the next part: since it began, sent one, or was allowed to send more.
        num_lent: How many more parts it may send than what was read allows, to make way for others.
        is_cancelled: Whether it was told to end.
        starving: Which of its streams have no part left for it that it was sent and has not read.
        num_fed: How many parts of each of its streams it was sent.
        fed_blocks: Of each stream, where the stored tensors of the parts lie that it has not read, by index.
    """

    __slots__ = ("due_ns", "fed_blocks", "is_cancelled", "max_parts", "num_fed", "num_lent", "num_parts", "since_ns", "starving")

    def __init__(self) -> None:
        self.num_parts = 0
        self.max_parts = 0
        self.num_lent = 0
        self.due_ns = 0
        self.since_ns = 0
        self.is_cancelled = False
        self.starving: set[int] = set()
        self.num_fed: dict[int, int] = {}
        self.fed_blocks: dict[int, dict[int, list[BlockId]]] = {}

    @property
    def has_credit(self) -> bool:
        """Whether it may send another part."""
        return self.num_parts < self.max_parts or not self.max_parts

    @property
    def is_timed(self) -> bool:
        """Whether it has to go on by itself."""
        if self.starving or self.is_cancelled:  # asked for each part, so in one call
            return self.is_cancelled
        return self.num_parts < self.max_parts or not self.max_parts


class Batch:
    """Calls that were sent to a replica together.

    Attributes:
        busy_ns: For how long the replicas of its processor had been busy by then, in all; 0 if it shares none.
        started_ns: When it became the first of its replica; None while another is before it.
        cost: What its calls cost together; their number, if the program declares no cost.
        expected_ns: When its result is expected here; None while the program's latency is unknown.
        blocks: Where its stored inputs lie, each block once; it may read them until it ends.
        awaited_by: Programs with calls that will be ready when it ends.
        ongoing: None if its program neither waits nor yields.
        trace: None if no request in it is recorded.
    """

    __slots__ = (
        "awaited_by", "batch_id", "blocks", "busy_ns", "calls", "cost", "dispatched_ns", "expected_ns", "ongoing", "reason",
        "replica", "started_ns", "timeout", "trace",
    )  # fmt: skip

    def __init__(self, batch_id: int, formed: FormedBatch, dispatched_ns: int) -> None:
        self.batch_id = batch_id
        self.replica = formed.replica
        self.calls = formed.calls
        self.cost = len(formed.calls) * formed.calls[0].cost
        self.reason = formed.reason
        self.dispatched_ns = dispatched_ns
        self.expected_ns: int | None = None
        self.blocks: Sequence[BlockId] = ()
        self.awaited_by: list[str] = []
        self.busy_ns = 0
        self.ongoing: Ongoing | None = None
        self.started_ns: int | None = None
        self.timeout: Timer | None = None
        self.trace: BatchTrace | None = None


class Replica:
    """A copy of a program.

    Attributes:
        batches: What it holds, in the order in which it runs them.
        latency: T(n) of this replica.
        processor: The cores that it shares with others; None if it has its own device.
        process: Where it holds residents, with other programs of its group; None if it has none.
        is_leaving: Whether it will end soon: it gets no more batches.
        is_surplus: Whether it is to be parked once its process holds no residents.
        prefetch_ns: When the next batch may be sent after it, so that it arrives as the running one ends.
        ended_ns, overdue_ns: When the engine learned that its last batch was done, and how long after it was.
    """

    __slots__ = (
        "batches", "ended_ns", "is_leaving", "is_surplus", "latency", "node", "overdue_ns", "pool", "prefetch_ns", "process",
        "processor", "replica_id",
    )  # fmt: skip

    def __init__(self, replica_id: str, node: str, pool: "ReplicaPool", processor: Processor | None = None) -> None:
        self.replica_id = replica_id
        self.node = node
        self.pool = pool
        self.processor = processor
        self.process: Process | None = None
        self.is_surplus = False
        self.batches: dict[int, Batch] = {}
        self.latency = LatencyModel(prior=pool.latency)
        self.prefetch_ns = NEVER_NS
        self.is_leaving = False
        self.ended_ns = 0
        self.overdue_ns = 0

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
        """When it is expected to have returned all its batches; None if it is idle or that is unknown."""
        last = next(reversed(self.batches.values()), None)
        return None if last is None else last.expected_ns
