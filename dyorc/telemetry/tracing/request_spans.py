"""A request's record as spans: the request, and below it what it waited for. Pure functions, called on the tracer's thread.

A batch belongs to several requests, but is one span: below the call that is first among those of traced requests
(`BatchTrace.spans`). It links to the other calls, and they link to it.
"""

from collections.abc import Iterator, Sequence

from dyorc.core.trace_context import TraceContext
from dyorc.engine.request_trace import BatchTrace, CallTrace, DecisionTrace, Move, PartTrace, RequestTrace, span_of_call
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.tracing.spans import Attributes, Span, SpanEvent, SpanKind, Value

_KINDS = {"job": SpanKind.CONSUMER}
_PROTOCOLS: dict[str, Attributes] = {
    "http": {"http.request.method": "POST", "network.protocol.name": "http"},
    "grpc": {"rpc.system": "grpc", "rpc.service": "inference.GRPCInferenceService"},
    "job": {"messaging.operation.type": "process"},
}
"""OpenTelemetry's semantic conventions, as far as they fit."""


def spans_of(record: RequestRecord, root: TraceContext) -> list[Span]:
    """Returns the spans of a request that has ended, those of batches that it has to show included.

    Args:
        root: The request's own span.
    """
    spans = [_request(record, root)]
    origin = record.origin
    if origin.read_ns > record.arrived_ns:
        spans.append(_below(root, "read", "read the request", record.arrived_ns, origin.read_ns))
    if record.story is not None:
        spans.extend(_steps(record.story, root, record.ended_ns))
    return spans


def _below(root: TraceContext, key: str, name: str, started_ns: int, ended_ns: int, **attributes: Value) -> Span:
    shown = {f"dyorc.{name}": value for name, value in attributes.items()}
    context = root.child(key)
    return Span(name=name, context=context, parent=root, started_ns=started_ns, ended_ns=ended_ns, attributes=shown)


def _request(record: RequestRecord, root: TraceContext) -> Span:
    origin = record.origin
    attributes: dict[str, Value] = {
        **_PROTOCOLS.get(origin.transport, {}),
        "dyorc.workflow": record.workflow,
        "dyorc.request_id": origin.request_id,
        "dyorc.outcome": record.outcome,
        **origin.attributes,
    }
    if origin.num_bytes:
        attributes["http.request.body.size" if origin.transport == "http" else "dyorc.num_bytes"] = origin.num_bytes
    if record.tenant:
        attributes["dyorc.tenant"] = record.tenant
    if record.outcome != "ok":
        attributes["error.type"] = record.outcome
    return Span(
        name=f"infer {record.workflow}",
        context=root,
        parent=origin.trace,
        started_ns=record.arrived_ns,
        ended_ns=max(record.ended_ns, origin.written_ns),
        kind=_KINDS.get(origin.transport, SpanKind.SERVER),
        attributes=attributes,
        happenings=_notes(record),
        error="" if record.outcome == "ok" else record.error or record.outcome,
    )


def _notes(record: RequestRecord) -> list[SpanEvent]:
    """Returns what else happened: results that were lost or dropped, and computed again; waiting for room."""
    if record.story is None:
        return []
    return [
        SpanEvent(f"result {note.event}", note.at_ns, {f"dyorc.{name}": fact for name, fact in note.facts().items()})
        for note in record.story.notes
    ]


def _steps(story: RequestTrace, root: TraceContext, ended_ns: int) -> Iterator[Span]:
    for call in story.calls:
        yield from _call(call, story.decisions, root, ended_ns)
    for index, decision in enumerate(story.decisions):
        yield _decision(index, decision, root, ended_ns)
    for part in story.parts:
        yield _part(part, root, ended_ns)


def _call(call: CallTrace, decisions: Sequence[DecisionTrace], root: TraceContext, ended_ns: int) -> Iterator[Span]:
    context = span_of_call(root, call)
    for batch in call.batches:
        if context not in batch.spans:  # its request was not yet known to be traced when the batch was sent
            batch.spans = (*batch.spans, context)
    mine = [batch for batch in call.batches if batch.spans[0] == context]
    links = [batch.span for batch in call.batches if batch.span is not None and batch not in mine]
    end_ns = max([call.ended_ns or ended_ns, *(batch.ended_ns for batch in mine)])
    yield Span(
        name=f"call {call.program}",
        context=context,
        parent=root,
        started_ns=call.asked_ns,
        ended_ns=end_ns,
        attributes=_call_attributes(call, decisions) | _naming(links),
        happenings=_turns(call, decisions),
        links=links,
        error=call.error if call.outcome == "failed" else "",
    )
    for batch in mine:
        yield from _batch(batch, context, end_ns)


def _call_attributes(call: CallTrace, decisions: Sequence[DecisionTrace]) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        "dyorc.program": call.program,
        "dyorc.outcome": call.outcome,
        "dyorc.is_guess": call.is_guess,
        "dyorc.num_attempts": len(call.batches),
    }
    if call.is_repeat:
        attributes["dyorc.is_repeat"] = True
    if call.queued_ns:
        attributes["dyorc.waited_for_inputs_s"] = _seconds(call.asked_ns, call.queued_ns)
        first = next(iter(call.batches), None)
        if first is not None:
            attributes["dyorc.waited_in_queue_s"] = _seconds(call.queued_ns, first.sent_ns)
            attributes["dyorc.batch.reason"] = call.batches[-1].reason
    if call.was_cold:
        attributes["dyorc.was_cold"] = True
    if 0 <= call.decision < len(decisions):
        attributes["dyorc.decision"] = decisions[call.decision].site
        attributes["dyorc.branch"] = call.branch
    for name, value in (call.bet or {}).items():
        attributes[f"dyorc.guess.{name}"] = value
    return attributes


def _turns(call: CallTrace, decisions: Sequence[DecisionTrace]) -> list[SpanEvent]:
    times = {"inputs are there": call.queued_ns, "the guess is right": call.committed_ns}
    if call.outcome == "squashed":  # perhaps long after it was done
        decided_ns = decisions[call.decision].decided_ns if 0 <= call.decision < len(decisions) else 0
        times["the guess is wrong"] = max(call.ended_ns, decided_ns)
    return [SpanEvent(text, at_ns) for text, at_ns in times.items() if at_ns]


def _batch(batch: BatchTrace, call: TraceContext, until_ns: int) -> Iterator[Span]:
    context = batch.span
    assert context is not None
    started_ns = batch.started_ns or batch.sent_ns
    yield Span(
        name=f"batch {batch.program}",
        context=context,
        parent=call,
        started_ns=batch.sent_ns,
        ended_ns=batch.ended_ns or until_ns,
        attributes=_batch_attributes(batch) | _naming(batch.spans[1:]),
        happenings=[SpanEvent("it is the first at its replica", batch.started_ns)] if batch.started_ns else (),
        links=list(batch.spans[1:]),
        error=batch.outcome if batch.outcome in ("failed", "lost") else "",
    )
    for index, move in enumerate(batch.moves):
        yield _move(context, index, move, started_ns)


def _naming(links: Sequence[TraceContext]) -> dict[str, Value]:
    """Names the traces of links, for tools that do not show links."""
    return {"dyorc.batch.traces": list(dict.fromkeys(link.trace_id for link in links))} if links else {}


def _batch_attributes(batch: BatchTrace) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        "dyorc.program": batch.program,
        "dyorc.replica": batch.replica_id,
        "dyorc.batch.id": f"{batch.batch_id:x}",
        "dyorc.batch.size": batch.size,
        "dyorc.batch.num_guesses": batch.num_guesses,
        "dyorc.batch.reason": batch.reason,
        "dyorc.outcome": batch.outcome,
    }
    if batch.outcome == "done":
        attributes["dyorc.gather_s"] = batch.gather_s
        attributes["dyorc.infer_s"] = batch.infer_s
        attributes["dyorc.publish_s"] = batch.publish_s
    return attributes


def _move(batch: TraceContext, index: int, move: Move, started_ns: int) -> Span:
    ended_ns = started_ns + round(move.took_s * 1e9)
    name = f"tensors by {move.tier}"
    return _below(batch, f"move {index}", name, started_ns, ended_ns, tier=move.tier, num_bytes=move.num_bytes)


def _decision(index: int, decision: DecisionTrace, root: TraceContext, ended_ns: int) -> Span:
    attributes: dict[str, Value] = {"dyorc.decision": decision.site, "dyorc.outcome": decision.outcome}
    for outcome, probability in decision.followed.items():
        attributes[f"dyorc.guess.{outcome}.probability"] = probability
    for outcome, gain_ms in decision.gains_ms.items():
        attributes[f"dyorc.guess.{outcome}.gain_s"] = gain_ms / 1e3
    return Span(
        name=f"decision at {decision.site}",
        context=root.child(f"decision {index}"),
        parent=root,
        started_ns=decision.opened_ns,
        ended_ns=decision.decided_ns or ended_ns,
        attributes=attributes,
    )


def _part(part: PartTrace, root: TraceContext, ended_ns: int) -> Span:
    name = "part of the answer"
    return _below(root, f"part {part.index}", name, part.sent_ns, part.taken_ns or ended_ns, index=part.index)


def _seconds(from_ns: int, to_ns: int) -> float:
    return max(0, to_ns - from_ns) / 1e9
