"""Records of requests, made by hand: two requests whose calls ran in one batch."""

from dyorc.core.trace_context import TraceContext
from dyorc.engine.request_trace import BatchTrace, CallTrace, RequestTrace
from dyorc.telemetry.record import Origin, RequestRecord

MS = 1_000_000


def batch_of(*numbers: int, batch_id: int = 7, outcome: str = "done") -> BatchTrace:
    return BatchTrace(
        batch_id=batch_id,
        program="small",
        replica_id="small#1",
        reason="max_batch_size was reached",
        size=len(numbers),
        num_guesses=0,
        requests=list(numbers),
        sent_ns=120 * MS,
        started_ns=121 * MS,
        ended_ns=150 * MS if outcome != "running" else 0,
        outcome=outcome,
    )


def call_in(*batches: BatchTrace, call_id: int = 1, outcome: str = "done") -> CallTrace:
    return CallTrace(
        call_id=call_id,
        program="small",
        asked_ns=105 * MS,
        queued_ns=110 * MS,
        ended_ns=151 * MS,
        batches=list(batches),
        outcome=outcome,
    )


def record_of(
    *calls: CallTrace, number: int = 1, span: TraceContext | None = None, caller: TraceContext | None = None, outcome: str = "ok"
) -> RequestRecord:
    story = RequestTrace(number, 104 * MS, span)
    story.calls.extend(calls)
    origin = Origin(request_id=f"r{number}", transport="http", trace=caller, span=span, arrived_ns=100 * MS, read_ns=103 * MS)
    return RequestRecord(
        number=number,
        origin=origin,
        workflow="classify",
        tenant="",
        started_ns=104 * MS,
        ended_ns=160 * MS,
        outcome=outcome,
        error="" if outcome == "ok" else "it broke",
        story=story,
    )
