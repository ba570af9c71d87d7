"""A record's spans: a tree with the request at its root, in which each batch is shown once, with links to all of its requests."""

from dyorc.core.trace_context import TraceContext, new_trace
from dyorc.engine.request_trace import BatchTrace, CallTrace, DecisionTrace, Move, PartTrace, TraceNote, span_of_call
from dyorc.telemetry.tracing.request_spans import spans_of
from dyorc.telemetry.tracing.spans import Span, SpanKind
from tests.unit.telemetry.recorded import MS, batch_of, call_in, record_of

ROOT = TraceContext("a" * 32, "b" * 16, is_sampled=True)


def named(spans: list[Span], name: str) -> Span:
    (found,) = [span for span in spans if span.name == name]
    return found


def traced_together(*spans: TraceContext) -> tuple[BatchTrace, list[CallTrace]]:
    """Returns a batch that was known to belong to these traced requests when it was sent, and a call of each."""
    batch = batch_of(*range(len(spans)))
    calls = [call_in(batch, call_id=10 + at) for at in range(len(spans))]
    batch.spans = tuple(span_of_call(span, call) for span, call in zip(spans, calls, strict=True))
    return batch, calls


def test_the_request_is_the_root_and_its_steps_stand_below_it() -> None:
    caller = TraceContext("a" * 32, "c" * 16, is_sampled=True)
    spans = spans_of(record_of(call_in(batch_of(1)), span=ROOT, caller=caller), ROOT)
    assert [span.name for span in spans] == ["infer classify", "read the request", "call small", "batch small"]
    request, reading, call, batch = spans
    assert (request.context, request.parent, request.kind) == (ROOT, caller, SpanKind.SERVER)
    assert (request.started_ns, request.ended_ns) == (100 * MS, 160 * MS)
    assert (reading.parent, reading.started_ns, reading.ended_ns) == (ROOT, 100 * MS, 103 * MS)
    assert (call.parent, call.started_ns, call.ended_ns) == (ROOT, 105 * MS, 151 * MS)
    assert (batch.parent, batch.started_ns, batch.ended_ns) == (call.context, 120 * MS, 150 * MS)
    assert {span.context.trace_id for span in spans} == {ROOT.trace_id}
    assert len({span.context.span_id for span in spans}) == 4


def test_a_call_says_what_it_waited_for_and_why_its_batch_was_formed() -> None:
    call = call_in(batch_of(1, 2, 3))
    call.is_guess, call.committed_ns, call.was_cold = True, 130 * MS, True
    call.decision, call.branch, call.bet = 0, "yes", {"probability": 0.9}
    record = record_of(call, span=ROOT)
    assert record.story is not None
    record.story.add_decision(DecisionTrace("flow.py:3", 106 * MS, decided_ns=130 * MS, outcome="yes", followed={"yes": 0.9}))
    spans = spans_of(record, ROOT)
    shown = named(spans, "call small")
    assert shown.attributes == {
        "dyorc.program": "small",
        "dyorc.outcome": "done",
        "dyorc.is_guess": True,
        "dyorc.num_attempts": 1,
        "dyorc.waited_for_inputs_s": 0.005,
        "dyorc.waited_in_queue_s": 0.01,
        "dyorc.batch.reason": "max_batch_size was reached",
        "dyorc.was_cold": True,
        "dyorc.decision": "flow.py:3",
        "dyorc.branch": "yes",
        "dyorc.guess.probability": 0.9,
    }
    assert [(each.name, each.at_ns) for each in shown.happenings] == [
        ("inputs are there", 110 * MS),
        ("the guess is right", 130 * MS),
    ]
    decision = named(spans, "decision at flow.py:3")
    assert decision.attributes["dyorc.outcome"] == "yes"
    assert decision.attributes["dyorc.guess.yes.probability"] == 0.9
    assert (decision.started_ns, decision.ended_ns) == (106 * MS, 130 * MS)


def test_a_batch_is_shown_once_and_linked_with_the_calls_of_all_traced_requests() -> None:
    roots = [new_trace(is_sampled=True) for _ in range(3)]
    batch, calls = traced_together(*roots)
    records = [record_of(call, number=at, span=root) for at, (call, root) in enumerate(zip(calls, roots, strict=True))]
    trees = [spans_of(record, root) for record, root in reversed(list(zip(records, roots, strict=True)))]
    trees.reverse()
    assert [sum(span.name == "batch small" for span in tree) for tree in trees] == [1, 0, 0], "in the first request's trace"
    shown = named(trees[0], "batch small")
    assert shown.context == batch.span
    assert shown.parent == named(trees[0], "call small").context
    assert list(shown.links) == [named(tree, "call small").context for tree in trees[1:]]
    assert [list(named(tree, "call small").links) for tree in trees] == [[], [batch.span], [batch.span]]
    assert shown.attributes["dyorc.batch.traces"] == [root.trace_id for root in roots[1:]], "for tools without links"
    assert named(trees[2], "call small").attributes["dyorc.batch.traces"] == [roots[0].trace_id]


def test_a_batch_of_requests_that_turn_out_to_be_traced_belongs_to_the_first_of_them() -> None:
    batch = batch_of(1, 2)
    first, second = (new_trace(is_sampled=True) for _ in range(2))
    slow = spans_of(record_of(call_in(batch, call_id=1), number=1), first)
    failed = spans_of(record_of(call_in(batch, call_id=2), number=2), second)
    assert named(slow, "batch small").parent == named(slow, "call small").context
    assert not [span for span in failed if span.name == "batch small"]
    assert list(named(failed, "call small").links) == [named(slow, "batch small").context]


def test_two_calls_of_one_request_share_a_batch() -> None:
    batch = batch_of(1, 1)
    spans = spans_of(record_of(call_in(batch, call_id=1), call_in(batch, call_id=2), span=ROOT), ROOT)
    (shown,) = [span for span in spans if span.name == "batch small"]
    calls = [span for span in spans if span.name == "call small"]
    assert shown.parent == calls[0].context
    assert list(calls[1].links) == [shown.context]


def test_moves_stand_below_their_batch() -> None:
    batch = batch_of(1)
    batch.moves = [Move("shm", 4096, 0.002), Move("zmq", 10, 0.001)]
    spans = spans_of(record_of(call_in(batch), span=ROOT), ROOT)
    move = named(spans, "tensors by shm")
    assert (move.parent, move.started_ns, move.ended_ns) == (batch.span, 121 * MS, 123 * MS)
    assert list(move.attributes.values()) == ["shm", 4096]
    assert named(spans, "tensors by zmq").context != move.context


def test_the_work_of_a_wrong_guess_appears_as_such() -> None:
    call = call_in(batch_of(1), outcome="squashed")
    call.is_guess, call.ended_ns = True, 140 * MS
    spans = spans_of(record_of(call, span=ROOT), ROOT)
    shown = named(spans, "call small")
    assert shown.attributes["dyorc.outcome"] == "squashed"
    assert ("the guess is wrong", 140 * MS) in [(each.name, each.at_ns) for each in shown.happenings]
    assert shown.ended_ns == named(spans, "batch small").ended_ns == 150 * MS, "its batch ran on"
    assert not shown.error


def test_a_call_that_was_tried_again_shows_each_batch() -> None:
    call = call_in(batch_of(1, batch_id=7, outcome="lost"), batch_of(1, batch_id=8))
    spans = spans_of(record_of(call, span=ROOT), ROOT)
    lost, done = [span for span in spans if span.name == "batch small"]
    assert (lost.error, done.error) == ("lost", "")
    assert lost.context != done.context
    assert named(spans, "call small").attributes["dyorc.num_attempts"] == 2


def test_a_failed_request_says_why() -> None:
    call = call_in(batch_of(1, outcome="failed"), outcome="failed")
    call.error = "ValueError: bad"
    spans = spans_of(record_of(call, span=ROOT, outcome="program"), ROOT)
    assert named(spans, "infer classify").error == "it broke"
    assert named(spans, "infer classify").attributes["error.type"] == "program"
    assert named(spans, "call small").error == "ValueError: bad"


def test_parts_and_what_was_computed_again_are_shown() -> None:
    record = record_of(span=ROOT)
    assert record.story is not None
    record.story.add_part(PartTrace(0, 130 * MS, 135 * MS))
    record.story.note(TraceNote(140 * MS, "lost", "small"))
    spans = spans_of(record, ROOT)
    part = named(spans, "part of the answer")
    assert (part.parent, part.started_ns, part.ended_ns) == (ROOT, 130 * MS, 135 * MS)
    (note,) = named(spans, "infer classify").happenings
    assert (note.name, note.at_ns, note.attributes) == ("result lost", 140 * MS, {"dyorc.program": "small"})


def test_a_request_without_a_story_is_one_span_and_its_reading() -> None:
    record = record_of(span=ROOT)
    record.story = None
    record.origin.written_ns = 170 * MS
    spans = spans_of(record, ROOT)
    assert [span.name for span in spans] == ["infer classify", "read the request"]
    assert spans[0].ended_ns == 170 * MS, "until the answer was written"
