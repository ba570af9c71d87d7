"""The trace has the form that viewers demand: bars nest, arrows have two ends on bars, times are in order."""

from typing import Any

import msgspec
import pytest

from dyorc.engine.request_trace import Move
from dyorc.telemetry.perfetto import Window, trace_events
from dyorc.telemetry.record import RequestRecord
from tests.trace_format import check
from tests.unit.telemetry.stories import batch, call, ns, record

_WINDOW = Window(from_ns=ns(0), base_ns=ns(0) - 1000)


def drawn(*records: RequestRecord, cell: int = 0) -> list[dict[str, Any]]:
    """Draws requests, and checks the form (`tests.trace_format`)."""
    events = msgspec.json.decode(msgspec.json.encode(trace_events(records, _WINDOW, cell)))
    check(events)
    return events


def of(events: list[dict[str, Any]], phase: str, kind: str) -> list[dict[str, Any]]:
    """Returns events of one kind."""
    return [event for event in events if event["ph"] == phase and event.get("cat") == kind]


def test_calls_and_batches_of_a_request() -> None:
    first = batch("small", 2, 3, 10, size=4, requests=[1, 2], infer_s=0.004, gather_s=0.002, moves=[Move("shm", 4096, 0.001)])
    second = batch("large", 12, 12, 40)
    calls = [call(1, "small", 2, 2, 11, batches=[first]), call(2, "large", 2, 11, 41, sources=[1], batches=[second])]
    events = drawn(record(42, calls))
    (request,) = of(events, "X", "request")
    assert (request["name"], request["dur"], request["args"]["request_id"]) == ("classify", 42_000, "r1")
    bars = of(events, "X", "batch")
    assert [bar["name"] for bar in bars if bar["pid"] == 2] == ["large x1", "infer", "small x4", "gather", "infer"]
    shown = next(bar for bar in bars if bar["name"] == "small x4")
    assert shown["args"]["moves"] == [{"tier": "shm", "num_bytes": 4096, "took_ms": 1.0}]
    assert shown["args"]["requests"] == [1, 2]
    assert len(of(events, "s", "call")) == 2
    (tensor,) = of(events, "s", "tensor")
    assert tensor["ts"] == shown["ts"] + shown["dur"] - 0.001


def test_what_happens_at_the_same_time_has_rows_of_its_own() -> None:
    shared = batch("large", 2, 5, 30, size=2, requests=[1, 2])
    pipelined = batch("large", 4, 20, 50)  # begins before the other has ended
    calls = [call(1, "large", 2, 2, 30, batches=[shared]), call(2, "large", 3, 3, 50, batches=[pipelined])]
    other = record(60, [call(3, "large", 2, 2, 30, batches=[shared])], number=2, request_id="r2")
    events = drawn(record(60, calls), other)
    assert len({event["tid"] for event in of(events, "X", "batch")}) == 2
    assert len([event for event in of(events, "X", "batch") if event["name"] == "large x2"]) == 1
    assert len({(event["pid"], event["tid"]) for event in of(events, "X", "request")}) == 2


def test_batches_of_two_orchestrators_with_the_same_number_are_both_drawn() -> None:
    one = record(30, [call(1, "large", 2, 2, 20, batches=[batch("large", 2, 2, 20, batch_id=1)])])
    two = record(60, [call(1, "large", 31, 31, 50, batches=[batch("large", 31, 31, 50, batch_id=1)])], number=2, request_id="r2")
    events = drawn(one, two)
    assert len([event for event in of(events, "X", "batch") if event["name"] == "large x1"]) == 2
    assert len(of(events, "s", "call")) == 2


def test_rows_are_used_again() -> None:
    later = record(30, [], number=2)
    for name in ("arrived_ns", "read_ns"):
        setattr(later.origin, name, ns(20))
    later.started_ns = ns(20)
    events = drawn(record(20), later)
    assert len({event["tid"] for event in of(events, "X", "request")}) == 1


def test_what_never_ended_or_was_lost_is_drawn_as_far_as_it_goes() -> None:
    calls = [
        call(1, "large", 2, 2, 0, outcome="waiting"),
        call(2, "large", 3, 3, 90, outcome="squashed", is_guess=True, batches=[batch("large", 4, 4, 90, num_guesses=1)]),
        call(3, "large", 4, 4, 70, batches=[batch("large", 5, 5, 30, outcome="lost"), batch("large", 40, 40, 70)]),
    ]
    calls[0].ended_ns = 0
    running = batch("large", 60, 0, 0, outcome="running")
    running.started_ns = running.ended_ns = 0
    calls.append(call(4, "large", 60, 60, 80, outcome="withdrawn", batches=[running]))
    events = drawn(record(80, calls, outcome="deadline_exceeded"))
    assert {event["name"] for event in of(events, "X", "call")} >= {"large", "large (wrong guess)"}
    assert len(of(events, "s", "call")) == 3


def test_cells_do_not_get_into_each_others_way() -> None:
    one = record(20, [call(1, "large", 2, 2, 20, batches=[batch("large", 2, 2, 20)])])
    events = drawn(one, cell=0) + drawn(one, cell=1)
    check(events)
    assert {event["pid"] for event in events} == {1, 2, 3, 4}


def test_what_began_long_ago_begins_with_the_trace() -> None:
    old = record(20)
    old.origin.arrived_ns -= 10_000_000
    (bar,) = of(drawn(old), "X", "request")
    assert (bar["ts"], bar["dur"]) == (0, 20_001)


_BAR = {"name": "a", "cat": "c", "ph": "X", "pid": 1, "tid": 1, "ts": 10.0, "dur": 5.0}
_START = {"name": "a", "cat": "c", "ph": "s", "pid": 1, "tid": 1, "ts": 11.0, "id": 1}
_END = {**_START, "ph": "f", "ts": 12.0, "bp": "e"}
_NAMES = [
    {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "p"}},
    {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "t"}},
]


@pytest.mark.parametrize(
    "wrong",
    [
        [_BAR | {"ph": "B"}],
        [_BAR | {"dur": -1.0}],
        [_BAR | {"ts": 0.00001}],
        [_BAR | {"tid": 2}],
        [_BAR, _BAR | {"ts": 12.0, "dur": 10.0}],
        [_BAR | {"ts": 20.0}, _BAR],
        [_BAR, _START],
        [_BAR, _START, _END | {"ts": 15.0}],
        [_BAR, _START, _END | {"ts": 10.5}],
        [_BAR, _START, _END | {"cat": "d"}],
        [_BAR, _START, _START, _END],
        [_NAMES[1]],
    ],
)
def test_what_is_wrong_is_found(wrong: list[dict[str, Any]]) -> None:
    check([*_NAMES, _BAR, _START, _END])
    with pytest.raises(AssertionError):
        check([*_NAMES, *wrong])
