"""A request with twice as many calls, decisions or parts takes twice as much work to explain, not four times."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from dyorc.config import RecordsConfig
from dyorc.core.trace_context import new_trace
from dyorc.engine.request_trace import CallTrace, DecisionTrace, PartTrace, RequestTrace
from dyorc.engine.trace_text import as_text
from dyorc.telemetry.critical_path import WrongGuesses, critical_path
from dyorc.telemetry.details import details
from dyorc.telemetry.perfetto import Window, trace_events
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.tracing.request_spans import spans_of
from dyorc.telemetry.workflow_graph import WorkflowGraph
from tests.unit.telemetry.stories import batch, call, ns, record

_SHORT = 150
_MAX_GROWTH = 2.2


def _turn(number: int, program: str = "work", **others: Any) -> CallTrace:
    """Returns the call of a turn of a loop, which reads that of the turn before."""
    at = 10 * number
    sources = (number - 1,) if number > 1 else ()
    return call(
        number, program, at, at, at + 8, **{"sources": sources, "batches": [batch(program, at + 1, at + 2, at + 8)]} | others
    )


def _loop(num: int) -> RequestRecord:
    """Each turn reads the decision of the one before."""
    decisions = [
        DecisionTrace("app.py:7", ns(10 * at + 8), [at], at - 2, "go on" if at > 1 else "", outcome="go on")
        for at in range(1, num)
    ]
    calls = [_turn(at, decision=at - 2, branch="go on" if at > 1 else "") for at in range(1, num)]
    return record(10 * num, calls, decisions=decisions)


def _guesses(num: int) -> RequestRecord:
    """Each call was done long before it was known to be right."""
    decisions = [DecisionTrace("app.py:7", ns(3), [at], outcome="go on") for at in range(1, num)]
    calls = [
        call(at, "work", 10 * at, 10 * at, 10 * at + 2, is_guess=True, committed_ns=ns(10 * at + 9), decision=at - 2)
        for at in range(1, num)
    ]
    return record(10 * num, calls, decisions=decisions)


def _readers(num: int) -> RequestRecord:
    """Each call reads the stream of the one before; all run from the first to the last part."""
    ends = 100 + num
    calls = [
        call(at, "read", 2, 2, ends + at, sources=[at - 1] if at > 1 else (), reads_streams=True,
             batches=[batch("read", 2, 3, ends + at, infer_s=1e-4)])
        for at in range(1, num)
    ]  # fmt: skip
    return record(ends + num, calls)


def _readers_side_by_side(num: int) -> RequestRecord:
    """The last call reads all streams; the others read none of each other."""
    readers = [
        call(at, "read", 2, 3, 10 * at, reads_streams=True, batches=[batch("read", 3, 3, 10 * at, infer_s=1e-4)])
        for at in range(1, num)
    ]
    return record(10 * num, [*readers, call(num, "join", 2, 10 * num - 1, 10 * num, sources=range(1, num))])


def _parts(num: int) -> RequestRecord:
    parts = [PartTrace(at, ns(10 * at + 8), ns(10 * at + 30)) for at in range(1, num)]
    return record(10 * num, [_turn(at) for at in range(1, num)], parts=parts)


def _nested(num: int) -> RequestRecord:
    """Nested workflows return a call's result after a decision, and the caller reads each of them."""
    decisions = [DecisionTrace("nested.py:3", ns(9 * at), [at], outcome="yes", depth=1) for at in range(1, num)]
    calls = [_turn(at, sources=(), depth=1) for at in range(1, num)]
    return record(20 * num, [*calls, *(_turn(num + at, sources=[at]) for at in range(1, num))], decisions=decisions)


def _programs(num: int) -> RequestRecord:
    """Ten calls of each program."""
    return record(10 * num, [_turn(at, f"program-{at // 10}") for at in range(1, num)])


_STORIES = [_loop, _guesses, _readers, _readers_side_by_side, _parts, _nested, _programs]


def _text(story: RequestTrace) -> str:
    log: list[Any] = [entry for call in story.calls for entry in (*([call] * len(call.batches)), call)]
    story.restore([*log, *story.decisions, *story.parts])
    return as_text(story.steps())


_STORE = RecordStore(RecordsConfig())
_READERS: dict[str, Callable[[RequestRecord, RequestTrace], object]] = {
    "critical path": lambda record, story: critical_path(record, WrongGuesses()),
    "details": lambda record, story: details(record, _STORE, 0, lambda _: True),
    "graph": lambda record, story: WorkflowGraph().learn(story, 1),
    "trace": lambda record, story: trace_events([record], Window(from_ns=0, base_ns=0), 0),
    "spans": lambda record, story: spans_of(record, new_trace(is_sampled=True)),
    "text": lambda record, story: _text(story),
}


def _num_lines(read: Callable[[RequestRecord, RequestTrace], object], record: RequestRecord) -> int:
    """Returns how many lines of Python it takes to read a record."""
    assert record.story is not None
    num = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal num
        num += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        read(record, record.story)
    finally:
        sys.settrace(before)
    return num


@pytest.mark.parametrize("reader", _READERS)
@pytest.mark.parametrize("story", _STORIES)
def test_work_grows_as_the_request_does(story: Callable[[int], RequestRecord], reader: str) -> None:
    read = _READERS[reader]
    assert _num_lines(read, story(2 * _SHORT)) < _MAX_GROWTH * _num_lines(read, story(_SHORT))


def test_a_long_chain_of_readers_is_followed_to_its_first() -> None:
    num = 2 * sys.getrecursionlimit()
    path = critical_path(_readers(num), WrongGuesses())
    assert {piece.call.call_id for piece in path if piece.call is not None} == set(range(1, num))
