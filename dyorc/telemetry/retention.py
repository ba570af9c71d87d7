"""Records that are kept apart (requests that failed, took long or were the slowest of their workflow; and refused ones), and how
much memory a record takes.

Sizes were measured with tracemalloc on CPython 3.11, 64 bit: a struct takes 32 bytes and 8 for each field, a time in nanoseconds
32, a list 64 and 8 for each entry. A request with two calls takes 3.5 KB if they ran alone, 2.0 KB if 32 calls shared each batch;
a decision adds 0.7 KB. Values shared with everything else (names of programs, tiers, small numbers) are not counted.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from dyorc.engine.request_trace import BatchTrace, CallTrace, RequestTrace
from dyorc.telemetry.record import RequestRecord

_RECORD = 1100
"""A record without a story, its origin, three places in tables, and the lists of the story."""
_CALL = 420
_BATCH = 560
_BATCH_ENTRY = 8
_MOVE = 120
_DECISION = 520
_PART = 130
_NOTE = 250


def num_bytes_of(record: RequestRecord, ratio: float) -> int:
    """Estimates how much memory is held for a record alone.

    Args:
        ratio: The fraction of requests that are recorded: so many of a batch's calls share what is known of it.
    """
    num_bytes = _RECORD + len(record.error) + len(record.origin.request_id)
    if record.story is not None:
        num_bytes += _of_story(record.story, ratio)
    return num_bytes


def _of_story(story: RequestTrace, ratio: float) -> int:
    num_bytes = sum([_of_call(call, ratio) for call in story.calls])
    return num_bytes + _DECISION * len(story.decisions) + _PART * len(story.parts) + _NOTE * len(story.notes)


def _of_call(call: CallTrace, ratio: float) -> int:
    num_bytes = _CALL + len(call.error)
    for batch in call.batches:
        num_bytes += int(_of_batch(batch) / max(1.0, batch.size * ratio))
    return num_bytes


def _of_batch(batch: BatchTrace) -> int:
    return _BATCH + _BATCH_ENTRY * len(batch.requests) + _MOVE * len(batch.moves)


NUM_SLOWEST = 20
"""Of each workflow."""
NUM_REFUSED = 100
"""Of each kind of error."""


class SizedRecord(msgspec.Struct, eq=False, gc=False):
    """A record, and the memory that it takes."""

    record: RequestRecord
    num_bytes: int


@dataclass(slots=True)
class _RecordQueue:
    """Records in the order in which they came, by number."""

    records: dict[int, SizedRecord] = field(default_factory=dict[int, SizedRecord])
    num_bytes: int = 0

    def add(self, kept: SizedRecord) -> None:
        self.records[kept.record.number] = kept
        self.num_bytes += kept.num_bytes

    def remove(self, number: int) -> SizedRecord:
        kept = self.records.pop(number)
        self.num_bytes -= kept.num_bytes
        return kept


class RefusedRecords:
    """Requests that were refused: the latest of each kind of error, so that a flood of one kind leaves the others.

    Args:
        max_bytes: For all of them.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_outcome: defaultdict[str, deque[SizedRecord]] = defaultdict(deque)
        self._num_bytes = 0

    def put(self, kept: SizedRecord) -> list[SizedRecord]:
        """Takes a record. Returns what is dropped for it."""
        mine = self._by_outcome[kept.record.outcome]
        mine.append(kept)
        self._num_bytes += kept.num_bytes
        dropped = [self._pop(mine)] if len(mine) > NUM_REFUSED else []
        while self._num_bytes > self._max_bytes:
            dropped.append(self._pop(max(self._by_outcome.values(), key=len)))
        return dropped

    def _pop(self, records: deque[SizedRecord]) -> SizedRecord:
        kept = records.popleft()
        self._num_bytes -= kept.num_bytes
        return kept

    def all(self) -> list[SizedRecord]:
        """Returns what is kept, the latest first."""
        records = chain.from_iterable(self._by_outcome.values())
        return sorted(records, key=lambda kept: -kept.record.ended_ns)


class RetainedRecords:
    """Three queues, for failed requests, slow ones, and the slowest of each workflow: none pushes all others out.

    Args:
        slow_ns: A request of any workflow that takes longer is slow.
    """

    def __init__(self, slow_ns: int) -> None:
        self._slow_ns = slow_ns
        self._failed, self._slow, self._slowest = self._queues = _RecordQueue(), _RecordQueue(), _RecordQueue()
        self._heaps: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """Durations and numbers of a workflow's slowest, the shortest first."""

    @property
    def num_bytes(self) -> int:
        """Memory for all of them."""
        return sum([queue.num_bytes for queue in self._queues])

    def put(self, kept: SizedRecord) -> list[SizedRecord]:
        """Takes a record that is no longer among the latest. Returns what is dropped for it: perhaps the record itself."""
        record = kept.record
        if record.has_failed:
            self._failed.add(kept)
            return []
        if record.duration_ns > self._slow_ns:
            self._slow.add(kept)
            return []
        heap = self._heaps[record.workflow]
        if len(heap) == NUM_SLOWEST and heap[0][0] >= record.duration_ns:
            return [kept]  # as most of them
        self._slowest.add(kept)
        heapq.heappush(heap, (record.duration_ns, record.number))
        return [self._slowest.remove(heapq.heappop(heap)[1])] if len(heap) > NUM_SLOWEST else []

    def pop(self) -> SizedRecord:
        """Removes the oldest record of the fullest queue."""
        fullest = max(self._queues, key=lambda queue: queue.num_bytes)
        kept = fullest.remove(next(iter(fullest.records)))
        if fullest is self._slowest:
            heap = [entry for entry in self._heaps[kept.record.workflow] if entry[1] != kept.record.number]
            heapq.heapify(heap)
            self._heaps[kept.record.workflow] = heap
        return kept

    def all(self) -> list[SizedRecord]:
        """Returns all records that are kept."""
        return [kept for queue in self._queues for kept in queue.records.values()]

    def records(self) -> Iterator[RequestRecord]:
        """Returns their records, the latest first."""
        return iter(sorted((kept.record for kept in self.all()), key=lambda record: -record.ended_ns))
