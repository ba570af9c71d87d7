"""The paths of requests, on random stories: as if each step looked at all calls, and without gaps."""

from collections.abc import Iterator
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from dyorc.engine.request_trace import BatchTrace, CallTrace, DecisionTrace, PartTrace, RequestTrace
from dyorc.telemetry import critical_path as critical_paths
from dyorc.telemetry import request_paths
from dyorc.telemetry.critical_path import WrongGuesses, able_ns, critical_path, has_ended, ready_ns
from dyorc.telemetry.record import Origin, RequestRecord
from dyorc.telemetry.request_paths import path_of_request
from tests.effort import examples

_LAST_NS = 60
_MAX_CALLS = 14

moments = st.integers(5, _LAST_NS)
durations = st.integers(0, 12)


class _PlainReady:
    """Looks at all calls for the one that was ready last."""

    def __init__(self, calls: list[CallTrace]) -> None:
        self.calls = [call for call in calls if has_ended(call)]

    def remove(self, call: CallTrace) -> None:
        self.calls = [other for other in self.calls if other is not call]

    def last_before(self, at_ns: int) -> CallTrace | None:
        return max((call for call in self.calls if ready_ns(call) <= at_ns), key=ready_ns, default=None)


class _PlainWalk(critical_paths._Walk):  # pyright: ignore[reportPrivateUsage]
    """Looks at all calls for each step."""

    def __init__(self, record: RequestRecord, story: RequestTrace, wrong_guesses: WrongGuesses) -> None:
        super().__init__(record, story, wrong_guesses)
        self._ready = _PlainReady(list(self._left.values()))  # pyright: ignore[reportAttributeAccessIssue, reportIncompatibleUnannotatedOverride]

    def _running_before(self, reader: CallTrace, since_ns: int, at_ns: int) -> CallTrace | None:
        running = [
            call
            for call in self._left.values()
            if has_ended(call) and able_ns(call) < at_ns and ready_ns(call) > since_ns and reader.call_id not in call.sources
        ]
        return max(running, key=lambda call: (min(ready_ns(call), at_ns), call.call_id in reader.sources), default=None)


class _PlainGraphWalk(request_paths._Walk):  # pyright: ignore[reportPrivateUsage]
    """Climbs from decision to decision, and looks at all ends for each call."""

    def _is_below(self, call: CallTrace, number: int) -> bool:
        at = call.decision
        while at not in (number, -1):
            at = self._decisions[at].decision
        return at == number

    def _index_ends(self) -> dict[int, list[int]]:
        return {
            call.call_id: [number for number in self._ends if call.call_id in self._decisions[number].sources]
            for call in self._calls.values()
        }


@st.composite
def batches(draw: st.DrawFn, number: int, sent_ns: int) -> BatchTrace:
    started_ns = sent_ns + draw(durations)
    infer_s, gather_s = draw(st.sampled_from([0, 2, 5])) / 1e9, draw(st.sampled_from([0, 1])) / 1e9
    return BatchTrace(
        number, "p", "r", "full", 1, 0, [1], sent_ns, started_ns, started_ns + draw(durations), gather_s, infer_s,
        overdue_ns=draw(st.sampled_from([0, 2])),
    )  # fmt: skip


def _places(draw: st.DrawFn, decisions: list[DecisionTrace]) -> tuple[int, str]:
    number = draw(st.integers(-1, len(decisions) - 1))
    return (number, draw(st.sampled_from([decisions[number].outcome or "yes", "no"]))) if number >= 0 else (-1, "")


@st.composite
def stories(draw: st.DrawFn) -> RequestTrace:
    """Draws stories of requests that may have failed, with guesses, decisions, and readers of streams."""
    story = RequestTrace(1, 5)
    story.is_answered = draw(st.booleans())
    decisions: list[DecisionTrace] = []
    for number in range(1, draw(st.integers(1, _MAX_CALLS)) + 1):
        asked_ns = draw(moments)
        queued_ns = asked_ns + draw(durations)
        ended_ns = queued_ns + draw(st.integers(0, _LAST_NS))
        sources = draw(st.lists(st.integers(1, number + 2).filter(lambda source, own=number: source != own), max_size=3))
        is_guess = draw(st.booleans())
        story.calls.append(
            CallTrace(
                number,
                draw(st.sampled_from(["a", "b"])),
                asked_ns,
                sources,
                *_places(draw, decisions),
                queued_ns=draw(st.sampled_from([queued_ns, queued_ns, 0])),
                ended_ns=ended_ns,
                is_guess=is_guess,
                committed_ns=queued_ns + draw(st.integers(0, _LAST_NS)) if is_guess and draw(st.booleans()) else 0,
                batches=[draw(batches(number, queued_ns + draw(durations)))] if draw(st.booleans()) else (),
                outcome=draw(st.sampled_from(["done", "done", "done", "failed", "waiting", "squashed"])),
                depth=draw(st.integers(0, 2)),
                reads_streams=draw(st.booleans()),
            )
        )
        if draw(st.booleans()):
            reads = draw(st.lists(st.integers(1, number), max_size=2))
            place, outcome = _places(draw, decisions), draw(st.sampled_from(["yes", "no", ""]))
            decisions.append(DecisionTrace("d", asked_ns, reads, *place, outcome=outcome, depth=draw(st.integers(0, 2))))
    story.decisions = decisions
    story.parts = [PartTrace(0, sent_ns, draw(st.sampled_from([0, sent_ns + 9]))) for sent_ns in draw(st.lists(moments))]
    return story


def _pieces(record: RequestRecord) -> Iterator[tuple[object, ...]]:
    for piece in critical_path(record, WrongGuesses()):
        yield piece.stage, piece.start_ns, piece.end_ns, piece.call and piece.call.call_id, piece.batch and piece.batch.batch_id


@settings(max_examples=examples(1000))
@given(stories(), st.integers(10, 2 * _LAST_NS), st.sampled_from(["ok", "program_failed"]))
def test_a_critical_path_is_that_of_a_walk_that_looks_at_all_calls(story: RequestTrace, ended_ns: int, outcome: str) -> None:
    origin = Origin(request_id="r", transport="http", arrived_ns=2, read_ns=4)
    record = RequestRecord(
        number=1, origin=origin, workflow="w", tenant="", started_ns=5, ended_ns=ended_ns, outcome=outcome, story=story
    )
    with patch.object(critical_paths, "_Walk", _PlainWalk):
        expected = list(_pieces(record))
    assert list(_pieces(record)) == expected
    path = critical_path(record, WrongGuesses())
    ends = [record.arrived_ns, *(piece.end_ns for piece in path)]
    assert [piece.start_ns for piece in path] == ends[:-1]
    assert ends[-1] == record.done_ns


@settings(max_examples=examples(1000))
@given(stories())
def test_a_path_through_the_graph_is_that_of_a_walk_that_climbs(story: RequestTrace) -> None:
    with patch.object(request_paths, "_Walk", _PlainGraphWalk):
        expected = path_of_request(story, lambda site, outcome: outcome)
    assert path_of_request(story, lambda site, outcome: outcome) == expected
