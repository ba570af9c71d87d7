"""Batches: calls that one replica runs together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from dyorc.engine.actions import FormReason
from dyorc.engine.model.calls import Call
from dyorc.engine.story import BatchTrace
from dyorc.engine.timers import Timer
from dyorc.tensor import BlockId

if TYPE_CHECKING:
    from dyorc.engine.scheduling.replicas import Replica


class FormedBatch(msgspec.Struct, frozen=True, gc=False):
    """Calls to be sent to a replica."""

    replica: "Replica"
    calls: list[Call]
    reason: FormReason


class Batch:
    """Calls that were sent to a replica together.

    Attributes:
        busy_ns: For how long the replicas of its processor had been busy by then, in all; 0 if it shares none.
        started_ns: When it became the first of its replica; None while another runs before it.
        expected_ns: When its result is expected here; None while nothing is known of the program.
        blocks: Where its stored inputs lie, one per input; it may read them until it ends.
        awaited_by: Programs with calls that will be ready when it ends.
        trace: What is written down about it; None if no request in it is recorded.
    """

    __slots__ = (
        "awaited_by", "batch_id", "blocks", "busy_ns", "calls", "dispatched_ns", "expected_ns", "reason", "replica", "started_ns",
        "timeout", "trace",
    )  # fmt: skip

    def __init__(self, batch_id: int, formed: FormedBatch, dispatched_ns: int, expected_ns: int | None) -> None:
        self.batch_id = batch_id
        self.replica = formed.replica
        self.calls = formed.calls
        self.reason = formed.reason
        self.dispatched_ns = dispatched_ns
        self.expected_ns = expected_ns
        self.blocks: Sequence[BlockId] = ()
        self.awaited_by: list[str] = []
        self.busy_ns = 0
        self.started_ns: int | None = None
        self.timeout: Timer | None = None
        self.trace: BatchTrace | None = None
