"""Records of requests as trace events in Chrome's JSON format, which Perfetto and chrome://tracing show.

Requests are rows, with their calls below them; replicas are rows, with their batches. Arrows go from each call to the batches it
was in, and from the batch that computed a tensor to the one that read it. Bars of a row either follow each other or nest, since
Perfetto shows no others. An arrow belongs to the bar that is open at its time on its row (``bp: e`` for its end).

Source: "Trace Event Format", Google, 2016, on complete events (X), metadata (M) and flows (s, f); Perfetto's documentation, on
JSON that overlaps ("FAQ").
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, TypeVar

import msgspec

from dyorc.engine.request_trace import BatchTrace, CallTrace
from dyorc.telemetry.details import Json, batch_name
from dyorc.telemetry.record import RequestRecord

T = TypeVar("T")

_IDS_PER_CELL = 1_000_000_000


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace shows.

    Attributes:
        from_ns: Requests that ended before are left out.
        base_ns: Times count from here; what was before is shown as if it had been then.
        max_requests: The latest so many. A thousand take the event loop 40 ms.
    """

    from_ns: int
    base_ns: int
    max_requests: int = 1000


def trace_events(records: Sequence[RequestRecord], window: Window, cell: int) -> list[Json]:
    """Returns the events of one process."""
    drawing = _Drawing(window.base_ns, cell)
    drawing.batches([batch for record in records for call in _calls(record) for batch in call.batches])
    drawing.requests(records)
    return drawing.events


def _calls(record: RequestRecord) -> Sequence[CallTrace]:
    return () if record.story is None else record.story.calls


class _Drawing:
    """Two processes of the trace: the requests of a cell, and its replicas."""

    def __init__(self, base_ns: int, cell: int) -> None:
        self.events: list[Json] = []
        self._base_ns = base_ns
        self._requests_pid, self._replicas_pid = 2 * cell + 1, 2 * cell + 2
        self._ids = count(cell * _IDS_PER_CELL)
        self._places: dict[tuple[int, int], tuple[int, int, int]] = {}
        """Row, begin and end of the bars of batches."""
        self._name("process_name", f"cell {cell}: requests", self._requests_pid)
        self._name("process_name", f"cell {cell}: replicas", self._replicas_pid)

    # Replicas

    def batches(self, batches: Sequence[BatchTrace]) -> None:
        """Draws batches, each once, on their replicas' rows. One that never came first in its replica is not shown."""
        by_replica: defaultdict[tuple[str, str], list[tuple[int, int, BatchTrace]]] = defaultdict(list)
        for batch in {_key_of(batch): batch for batch in batches}.values():
            if batch.started_ns and batch.ended_ns > batch.started_ns:
                by_replica[batch.program, batch.replica_id].append((batch.started_ns, batch.ended_ns, batch))
        next_row = 1
        for (program, replica_id), bars in sorted(by_replica.items(), key=lambda item: item[0]):
            num_rows = 0
            for row, batch in _arrange_in_rows(bars):
                num_rows = max(num_rows, row + 1)
                self._batch(batch, next_row + row)
            for row in range(num_rows):
                self._name("thread_name", f"{program} {replica_id}", self._replicas_pid, next_row + row)
            next_row += num_rows

    def _batch(self, batch: BatchTrace, row: int) -> None:
        self._places[_key_of(batch)] = row, batch.started_ns, batch.ended_ns
        facts: Json = {
            "batch": batch_name(batch), "size": batch.size, "num_guesses": batch.num_guesses, "reason": batch.reason,
            "requests": sorted(set(batch.requests)), "outcome": batch.outcome,
            "waited_in_replica_ms": (batch.started_ns - batch.sent_ns) / 1e6,
        }  # fmt: skip
        facts["moves"] = [{"tier": move.tier, "num_bytes": move.num_bytes, "took_ms": move.took_s * 1e3} for move in batch.moves]
        place = self._replicas_pid, row
        self._bar(f"{batch.program} x{batch.size}", "batch", place, batch.started_ns, batch.ended_ns, facts)
        at_ns = batch.started_ns
        for name, took_s in (("gather", batch.gather_s), ("infer", batch.infer_s), ("publish", batch.publish_s)):
            until_ns = min(at_ns + round(took_s * 1e9), batch.ended_ns)
            if until_ns > at_ns:
                self._bar(name, "batch", place, at_ns, until_ns, {})
            at_ns = until_ns

    # Requests

    def requests(self, records: Sequence[RequestRecord]) -> None:
        """Draws requests with their calls. Requests that need the same number of rows share them, one after the other."""
        by_height: defaultdict[int, list[tuple[int, int, tuple[RequestRecord, list[tuple[int, CallTrace]]]]]] = defaultdict(list)
        for record in records:
            rows = _arrange_in_rows((call.asked_ns, _end_ns(call, record), call) for call in _calls(record))
            height = 1 + max((row for row, _ in rows), default=0)
            by_height[height].append((record.arrived_ns, record.done_ns, (record, rows)))
        next_row = 1
        for height, blocks in sorted(by_height.items()):
            num_blocks = 0
            for block, (record, rows) in _arrange_in_rows(blocks):
                num_blocks = max(num_blocks, block + 1)
                self._request(record, rows, next_row + block * height)
            for row in range(num_blocks * height):
                self._name("thread_name", "request" if row % height == 0 else "its calls", self._requests_pid, next_row + row)
            next_row += num_blocks * height

    def _request(self, record: RequestRecord, rows: Sequence[tuple[int, CallTrace]], first_row: int) -> None:
        facts: Json = {"request_id": record.origin.request_id, "number": record.number, "outcome": record.outcome}
        if record.trace_id:
            facts["trace_id"] = record.trace_id
        place = self._requests_pid, first_row
        self._bar(record.workflow, "request", place, record.arrived_ns, record.done_ns, facts)
        for row, call in rows:
            self._call(call, record, first_row + row)
        self._tensors(_calls(record))

    def _call(self, call: CallTrace, record: RequestRecord, row: int) -> None:
        place, end_ns = (self._requests_pid, row), _end_ns(call, record)
        name = f"{call.program} (wrong guess)" if call.outcome == "squashed" else call.program
        facts: Json = {"call": call.call_id, "outcome": call.outcome, "is_guess": call.is_guess, "was_cold": call.was_cold}
        facts["batches"] = [batch_name(batch) for batch in call.batches]
        self._bar(name, "call", place, call.asked_ns, end_ns, facts)
        at_ns = call.asked_ns
        queued_ns = call.queued_ns or end_ns
        sent_ns = call.batches[0].sent_ns if call.batches else end_ns
        for state, until_ns in (("waits for inputs", queued_ns), ("queued", sent_ns), ("running", end_ns)):
            until_ns = min(max(until_ns, at_ns), end_ns)
            if until_ns > at_ns:
                self._bar(state, "call", place, at_ns, until_ns, {})
            at_ns = until_ns
        for batch in call.batches:
            if _key_of(batch) in self._places and call.asked_ns <= batch.sent_ns < end_ns:
                to_row, started_ns, _ = self._places[_key_of(batch)]
                self._arrow("call", place, batch.sent_ns, (self._replicas_pid, to_row), started_ns)

    def _tensors(self, calls: Sequence[CallTrace]) -> None:
        """Draws an arrow from the batch that computed a call's result to each that read it."""
        by_number = {call.call_id: call for call in calls}
        for call in calls:
            sources = [by_number[number] for number in call.sources if number in by_number]
            for source in sources:
                if call.batches and source.batches:
                    self._tensor(source.batches[-1], call.batches[0])

    def _tensor(self, producer: BatchTrace, consumer: BatchTrace) -> None:
        if _key_of(producer) in self._places and _key_of(consumer) in self._places:
            from_row, _, ended_ns = self._places[_key_of(producer)]
            to_row, started_ns, _ = self._places[_key_of(consumer)]
            if ended_ns <= started_ns:
                pid = self._replicas_pid
                self._arrow("tensor", (pid, from_row), ended_ns - 1, (pid, to_row), started_ns)  # at its end, it is not open

    # Events

    def _bar(self, name: str, kind: str, place: tuple[int, int], start_ns: int, end_ns: int, facts: Json) -> None:
        event = self._event(name, kind, "X", place, start_ns)
        event["dur"] = (max(end_ns, self._base_ns) - max(start_ns, self._base_ns)) / 1e3
        event["args"] = facts
        self.events.append(event)

    def _arrow(self, kind: str, start: tuple[int, int], start_ns: int, end: tuple[int, int], end_ns: int) -> None:
        number = next(self._ids)
        self.events.append(self._event(kind, kind, "s", start, start_ns) | {"id": number})
        self.events.append(self._event(kind, kind, "f", end, max(end_ns, start_ns)) | {"id": number, "bp": "e"})

    def _event(self, name: str, kind: str, phase: str, place: tuple[int, int], at_ns: int) -> dict[str, Any]:
        pid, row = place
        at_us = max(0, at_ns - self._base_ns) / 1e3
        return {"name": name, "cat": kind, "ph": phase, "pid": pid, "tid": row, "ts": at_us}

    def _name(self, label: str, name: str, pid: int, row: int = 0) -> None:
        self.events.append({"name": label, "ph": "M", "pid": pid, "tid": row, "args": {"name": name}})


def _key_of(batch: BatchTrace) -> tuple[int, int]:
    """Identifies a batch: a gateway's requests have copies of it, and each orchestrator numbers its batches from 1."""
    return batch.batch_id, batch.sent_ns


def _end_ns(call: CallTrace, record: RequestRecord) -> int:
    """Returns where a call's bar ends: with its request at the latest."""
    return max(call.asked_ns, min(call.ended_ns or record.ended_ns, record.ended_ns))


def _arrange_in_rows(bars: Iterable[tuple[int, int, T]]) -> list[tuple[int, T]]:
    """Returns each thing with the number of its row: the first in which nothing else is at its time.

    So the bars of a row follow each other or nest, as viewers of traces demand.

    Args:
        bars: Begin, end, and what it is.
    """
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    placed: list[tuple[int, T]] = []
    num_rows = 0
    for start_ns, end_ns, thing in sorted(bars, key=lambda bar: (bar[0], -bar[1])):
        while busy and busy[0][0] <= start_ns:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row, num_rows = num_rows, num_rows + 1
        heapq.heappush(busy, (end_ns, row))
        placed.append((row, thing))
    return placed
