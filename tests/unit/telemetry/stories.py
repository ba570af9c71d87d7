"""Stories made by hand. Times are in milliseconds since the request's first byte."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from dyorc.engine.request_trace import BatchTrace, CallTrace, RequestTrace
from dyorc.telemetry.record import Origin, RequestRecord

_START_NS = 5_000_000_000_000
"""The monotonic clock at the first byte."""

_batch_ids = count(0x7FA3)


def ns(at_ms: float) -> int:
    """Returns a time on the monotonic clock."""
    return _START_NS + round(at_ms * 1e6)


def batch(program: str, sent: float, started: float, ended: float, **others: Any) -> BatchTrace:
    """Returns a batch that was sent, began and ended then, and computed in between unless others say something else."""
    given: dict[str, Any] = {
        "batch_id": next(_batch_ids), "replica_id": f"{program}#1", "reason": "all waiting calls",
        "size": 1, "num_guesses": 0, "requests": [1],
        "infer_s": (ended - started) / 1e3, "outcome": "done",
    }  # fmt: skip
    return BatchTrace(program=program, sent_ns=ns(sent), started_ns=ns(started), ended_ns=ns(ended), **given | others)


def call(number: int, program: str, asked: float, queued: float, ended: float, **others: Any) -> CallTrace:
    """Returns a call that is done."""
    given: dict[str, Any] = {"outcome": "done"}
    return CallTrace(
        call_id=number, program=program, asked_ns=ns(asked), queued_ns=ns(queued), ended_ns=ns(ended), **given | others
    )


def record(ended: float, calls: Sequence[CallTrace] = (), **others: Any) -> RequestRecord:
    """Returns a request that was read in 1 ms, handed over at 2 ms, and ended then. Its number is 1, its id "r1"."""
    origin: dict[str, Any] = {"request_id": "r1", "transport": "http", "arrived_ns": ns(0), "read_ns": ns(1)}
    given: dict[str, Any] = {"number": 1, "workflow": "classify", "tenant": "", "outcome": "ok"}
    origin |= {name: others.pop(name) for name in list(others) if name in Origin.__struct_fields__}
    story = RequestTrace(1, ns(2))
    story.calls.extend(calls)
    story.decisions = others.pop("decisions", ())
    story.parts = others.pop("parts", ())
    story.notes = others.pop("notes", ())
    return RequestRecord(origin=Origin(**origin), started_ns=ns(2), ended_ns=ns(ended), story=story, **given | others)
