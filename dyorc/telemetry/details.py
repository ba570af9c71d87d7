"""A request's record as JSON: a summary for lists, and everything.

Times are in milliseconds since the request's first byte; those with ``_s`` are Unix times.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from dyorc.engine.request_trace import BatchTrace, CallTrace, DecisionTrace, RequestTrace
from dyorc.telemetry.diagnosis import Diagnosis, diagnose
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.record_store import MaySee, RecordStore

Json: TypeAlias = dict[str, Any]


def summary(record: RequestRecord, store: RecordStore, cell: int) -> Json:
    """Returns what lists show of a request."""
    return _summary(record, diagnose(record, store.wrong_guesses), cell)


def details(record: RequestRecord, store: RecordStore, cell: int, may_see: MaySee) -> Json:
    """Returns everything about a request.

    Args:
        may_see: Decides which of the other requests that shared its batches are named.
    """
    diagnosis = diagnose(record, store.wrong_guesses)
    story = record.story or RequestTrace(record.number, record.started_ns)
    clock = _Clock(record.arrived_ns)
    batches = {batch.batch_id: batch for call in story.calls for batch in call.batches}
    return _summary(record, diagnosis, cell) | {
        "num_bytes": record.origin.num_bytes,
        "stages": {f"{stage}_ms": _ms(duration_ns) for stage, duration_ns in diagnosis.stages_ns.items()},
        "diagnosis": diagnosis.sentences,
        "path": [
            {
                "stage": str(piece.stage),
                "from_ms": clock.ms(piece.start_ns),
                "to_ms": clock.ms(piece.end_ns),
                "call": None if piece.call is None else piece.call.call_id,
            }
            for piece in diagnosis.path
        ],
        "calls": [_call(call, clock) for call in story.calls],
        "batches": {batch_name(batch): _batch(batch, clock, store, may_see) for batch in batches.values()},
        "decisions": [_decision(decision, clock) for decision in story.decisions],
        "parts": [
            {"index": part.index, "sent_ms": clock.ms(part.sent_ns), "taken_ms": clock.ms(part.taken_ns)} for part in story.parts
        ],
        "notes": [{"at_ms": clock.ms(note.at_ns), "text": note.text()} for note in story.notes],
    }


def batch_name(batch: BatchTrace) -> str:
    """Returns the name of a batch."""
    return f"{batch.batch_id:x}"


class _Clock:
    """Times of one request; 0 means that the moment never came."""

    def __init__(self, arrived_ns: int) -> None:
        self._arrived_ns = arrived_ns

    def ms(self, at_ns: int) -> float | None:
        return _ms(at_ns - self._arrived_ns) if at_ns else None


def _unix_s(at_ns: int) -> float:
    return round(time.time() - (time.monotonic_ns() - at_ns) / 1e9, 6)


def _ms(duration_ns: int) -> float:
    return round(duration_ns / 1e6, 3)


def _summary(record: RequestRecord, diagnosis: Diagnosis, cell: int) -> Json:
    calls: Sequence[CallTrace] = () if record.story is None else record.story.calls
    return {
        "request_id": record.origin.request_id,
        "number": record.number,
        "cell": cell,
        "workflow": record.workflow,
        "tenant": record.tenant,
        "transport": record.origin.transport,
        "outcome": record.outcome,
        "error": record.error,
        "arrived_s": _unix_s(record.arrived_ns),
        "ended_s": _unix_s(record.ended_ns),
        "duration_ms": _ms(record.duration_ns),
        "num_calls": len(calls),
        "num_guesses": sum([call.is_guess for call in calls]),
        "trace_id": record.trace_id,
        "cause": str(diagnosis.cause),
    }


def _call(call: CallTrace, clock: _Clock) -> Json:
    return {
        "call": call.call_id,
        "program": call.program,
        "sources": list(call.sources),
        "decision": None if call.decision < 0 else call.decision,
        "branch": call.branch,
        "depth": call.depth,
        "asked_ms": clock.ms(call.asked_ns),
        "queued_ms": clock.ms(call.queued_ns),
        "ended_ms": clock.ms(call.ended_ns),
        "is_guess": call.is_guess,
        "committed_ms": clock.ms(call.committed_ns),
        "was_cold": call.was_cold,
        "num_waiting": call.num_waiting,
        "is_repeat": call.is_repeat,
        "bet": call.bet,
        "outcome": call.outcome,
        "error": call.error,
        "batches": [batch_name(batch) for batch in call.batches],
    }


def _batch(batch: BatchTrace, clock: _Clock, store: RecordStore, may_see: MaySee) -> Json:
    return {
        "program": batch.program,
        "replica": batch.replica_id,
        "reason": batch.reason,
        "size": batch.size,
        "num_guesses": batch.num_guesses,
        "requests": [_shared_by(number, num, store, may_see) for number, num in Counter(batch.requests).items()],
        "sent_ms": clock.ms(batch.sent_ns),
        "started_ms": clock.ms(batch.started_ns),
        "ended_ms": clock.ms(batch.ended_ns),
        "gather_ms": round(batch.gather_s * 1e3, 3),
        "infer_ms": round(batch.infer_s * 1e3, 3),
        "publish_ms": round(batch.publish_s * 1e3, 3),
        "moves": [
            {"tier": move.tier, "num_bytes": move.num_bytes, "took_ms": round(move.took_s * 1e3, 3)} for move in batch.moves
        ],
        "outcome": batch.outcome,
    }


def _shared_by(number: int, num_calls: int, store: RecordStore, may_see: MaySee) -> Json:
    """Returns the visible facts about a request that has calls in a batch."""
    record = store.by_number(number)
    is_shown = record is not None and may_see(record)
    return {
        "request_id": record.origin.request_id if record is not None and is_shown else None,
        "number": number,
        "workflow": record.workflow if record is not None and is_shown else None,
        "num_calls": num_calls,
    }


def _decision(decision: DecisionTrace, clock: _Clock) -> Json:
    return {
        "site": decision.site,
        "sources": list(decision.sources),
        "decision": None if decision.decision < 0 else decision.decision,
        "branch": decision.branch,
        "opened_ms": clock.ms(decision.opened_ns),
        "decided_ms": clock.ms(decision.decided_ns),
        "followed": decision.followed,
        "outcome": decision.outcome,
        "gains_ms": decision.gains_ms,
    }
