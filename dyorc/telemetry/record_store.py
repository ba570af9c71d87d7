"""Records of the last requests, in memory. Records of slow and failed requests are kept longer.

For the event loop's thread.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal, TypeAlias

import msgspec

from dyorc.config import RecordsConfig
from dyorc.telemetry.critical_path import WrongGuesses
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.retention import RefusedRecords, RetainedRecords, SizedRecord, num_bytes_of

_REFUSED_RATIO = 1 / 16
"""The part of the memory that requests which were refused may take."""

MaySee: TypeAlias = Callable[[RequestRecord], bool]

Order: TypeAlias = Literal["latest", "slowest"]
Outcome: TypeAlias = Literal["all", "ok", "failed"]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to list.

    Attributes:
        workflow: Only of this one; None: of all.
        limit: How many at most.
        beyond_ns: Only requests that ended by then or, in the order ``slowest``, took at most as long; None: all. Used to
            continue a list.
    """

    workflow: str | None = None
    order: Order = "latest"
    outcome: Outcome = "all"
    limit: int = 50
    beyond_ns: int | None = None


@dataclass(frozen=True, slots=True)
class RecordUsage:
    """How much is kept.

    Attributes:
        num: How many records.
        num_bytes: How much memory they take, about.
        oldest_ns: When the oldest of the latest ones ended; None without records. No later request was dropped.
    """

    num: int
    num_bytes: int
    oldest_ns: int | None


class RecordStore:
    """Keeps records within a number of bytes.

    A new record is one of the latest. When room is needed, the oldest of those goes, unless it failed, took longer than
    `slow_s`, or is among the slowest of its workflow: then it is retained separately. Retained records may take up half of the
    room; the latest have the rest. Refused requests have a little separate room. Whether a request was slow is decided only when
    its record has to move: by then its client has read the answer.

    Attributes:
        wrong_guesses: Batches of wrong guesses that delayed other calls.
    """

    def __init__(self, config: RecordsConfig) -> None:
        self._ratio = config.ratio
        self._max_bytes = config.max_bytes
        self._latest: deque[SizedRecord] = deque()
        self._num_bytes = 0
        self._retained = RetainedRecords(round(config.slow_s * 1e9))
        self._refused = RefusedRecords(int(_REFUSED_RATIO * config.max_bytes))
        self._by_id: dict[str, RequestRecord] = {}
        self._by_number: dict[int, RequestRecord] = {}
        self.wrong_guesses = WrongGuesses()

    # Taking them in

    def take(self, record: RequestRecord) -> None:
        """Keeps a record."""
        kept = SizedRecord(record, num_bytes_of(record, self._ratio))
        self._num_bytes += kept.num_bytes
        self._by_id[record.origin.request_id] = record
        if record.was_refused:
            for dropped in self._refused.put(kept):
                self._drop(dropped)
        else:
            self._take_answered(kept)
        while self._num_bytes > self._max_bytes:
            self._make_room()

    def _take_answered(self, kept: SizedRecord) -> None:
        record = kept.record
        self._latest.append(kept)
        self._by_number[record.number] = record
        self.wrong_guesses.add(record)

    def _make_room(self) -> None:
        if self._retained.num_bytes > self._max_bytes // 2 or not self._latest:
            self._drop(self._retained.pop())
        else:
            for dropped in self._retained.put(self._latest.popleft()):
                self._drop(dropped)

    def _drop(self, kept: SizedRecord) -> None:
        record = kept.record
        self._num_bytes -= kept.num_bytes
        self._by_number.pop(record.number, None)
        if self._by_id.get(record.origin.request_id) is record:
            del self._by_id[record.origin.request_id]

    # Finding them

    def find(self, request_id: str, may_see: MaySee) -> RequestRecord | None:
        """Returns a request's record. Clients choose ids, so several may have the same: it is the latest that may be seen."""
        latest = self._by_id.get(request_id)
        if latest is None or may_see(latest):
            return latest
        return next((record for record in self._all() if record.origin.request_id == request_id and may_see(record)), None)

    def by_number(self, number: int) -> RequestRecord | None:
        """Returns the record of a request by the engine's number."""
        return self._by_number.get(number)

    def select(self, query: Query, may_see: MaySee) -> list[RequestRecord]:
        """Returns records in the order that is asked for."""
        matching = (record for record in self._all() if _fits(record, query) and may_see(record))
        if query.order == "slowest":
            return heapq.nlargest(query.limit, matching, key=_duration_ns)
        return list(islice(matching, query.limit))

    def latest_since(self, from_ns: int, may_see: MaySee) -> list[RequestRecord]:
        """Returns the latest records, of requests that ended after a time, the last first: without refused requests, and without
        slow and failed ones from before, so that each kind has its share."""
        records: list[RequestRecord] = []
        for kept in reversed(self._latest):
            if kept.record.ended_ns < from_ns:
                break
            if may_see(kept.record):
                records.append(kept.record)
        return records

    def since(self, from_ns: int, may_see: MaySee) -> list[RequestRecord]:
        """Returns the records of requests that ended after a time, the latest first."""
        records = self.latest_since(from_ns, may_see)
        if self._latest and self._latest[0].record.ended_ns < from_ns:
            return records
        others = chain(self._retained.records(), (kept.record for kept in self._refused.all()))
        return records + [record for record in others if record.ended_ns >= from_ns and may_see(record)]

    def usage(self, may_see: MaySee) -> RecordUsage:
        """Returns how much is kept of what may be seen."""
        sizes = [
            kept.num_bytes for kept in chain(self._latest, self._refused.all(), self._retained.all()) if may_see(kept.record)
        ]
        return RecordUsage(len(sizes), sum(sizes), self._latest[0].record.ended_ns if self._latest else None)

    def _all(self) -> Iterator[RequestRecord]:
        """Yields all records: the latest first, then the retained ones."""
        refused = self._refused.all()
        latest = heapq.merge(reversed(self._latest), refused, key=_ended_later) if refused else reversed(self._latest)
        yield from (kept.record for kept in latest)
        yield from self._retained.records()


def _fits(record: RequestRecord, query: Query) -> bool:
    if query.workflow is not None and record.workflow != query.workflow:
        return False
    if query.beyond_ns is not None and query.beyond_ns < (record.duration_ns if query.order == "slowest" else record.ended_ns):
        return False
    return query.outcome == "all" or record.has_failed == (query.outcome == "failed")


def _ended_later(kept: SizedRecord) -> int:
    return -kept.record.ended_ns


def _duration_ns(record: RequestRecord) -> int:
    """Returns `RequestRecord.duration_ns`, which would cost three times as much for each of 10,000."""
    origin = record.origin
    return max(record.ended_ns, origin.written_ns) - (origin.arrived_ns or record.started_ns)
