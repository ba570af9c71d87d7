"""Requests in flight: the state that a process keeps of each until its receiver has the answer. For the event loop's thread."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from dyorc.answering.input_identity import InputsIdentity
from dyorc.answering.part_stream import PartStream
from dyorc.core.request import Receiver
from dyorc.core.tensor import TensorRef
from dyorc.engine.model.journal_keeper import JournalKeeper
from dyorc.engine.request_trace import RequestTrace
from dyorc.models.submission import Submission
from dyorc.telemetry.record import Origin, RequestRecord, RequestRecorder, outcome_of


class RecordedRequest(msgspec.Struct, frozen=True, eq=False):
    """A request in flight that is recorded.

    Attributes:
        story: Its events; the engine fills it.
        recorder: Gets the record; None: only the story is kept.
        keeper: Gets the journal, if the history is kept and the engine is in this process.
    """

    origin: Origin
    story: RequestTrace
    workflow: str
    tenant: str
    recorder: RequestRecorder | None
    keeper: JournalKeeper | None = None

    @classmethod
    def begin(cls, request_id: int, submission: Submission) -> Self | None:
        """Begins to record a request that is submitted now; None if nothing is known of its origin."""
        origin = submission.origin
        if origin is None:
            return None
        story = origin.story = RequestTrace(request_id, time.monotonic_ns(), origin.span)
        keeper = None if origin.histories is None else origin.histories.keeper(origin.request_id, submission.terms)
        recorder = submission.recorder if origin.is_recorded else None
        return cls(origin, story, submission.model.name, submission.terms.tenant, recorder, keeper)

    def end(self, error: Exception | None) -> None:
        """Hands the record over, now that the receiver has the answer or this error."""
        if self.recorder is None:
            return
        span = self.origin.span or self.origin.trace
        record = RequestRecord(
            number=self.story.number,
            origin=self.origin,
            workflow=self.workflow,
            tenant=self.tenant,
            started_ns=self.story.started_ns,
            ended_ns=time.monotonic_ns(),
            outcome=outcome_of(error),
            error="" if error is None else str(error),
            trace_id="" if span is None else span.trace_id,
            story=self.story,
        )
        self.recorder.ended(record)


@dataclass(slots=True, eq=False)
class RequestInFlight:
    """A request in flight.

    Attributes:
        recorded: Its record, if it is recorded.
        stream: Gets its parts, if it has any.
        stored: Outputs that the receiver is taking, if their bytes are stored.
        is_untaken: Whether the engine keeps those bytes until it learns that they were taken.
        is_taking: Whether the receiver is taking large outputs on a thread; until that ends, their memory must stay.
        effect_begins: See `Submission`; None if another process runs it.
    """

    receiver: Receiver[Any]
    identity: InputsIdentity
    recorded: RecordedRequest | None = None
    stream: PartStream | None = None
    stored: Sequence[TensorRef] = ()
    is_untaken: bool = False
    is_taking: bool = False
    effect_begins: Callable[[], None] | None = None
