"""Requests in flight that are recorded, and the records that are made when they end. For the event loop's thread."""

import time
from typing import Self

import msgspec

from dyorc.engine.story import RequestTrace
from dyorc.submission import Submission
from dyorc.telemetry.record import Origin, Recorder, RequestRecord, outcome_of


class Recorded(msgspec.Struct, frozen=True, eq=False):
    """A request in flight that is recorded.

    Attributes:
        story: What happens to it; the engine fills it.
        recorder: Gets the record; None: only the story is of interest.
    """

    origin: Origin
    story: RequestTrace
    workflow: str
    tenant: str
    recorder: Recorder | None

    @classmethod
    def begin(cls, request_id: int, submission: Submission) -> Self | None:
        """Begins to record a request that is submitted now; None if nothing is known of its origin."""
        origin = submission.origin
        if origin is None:
            return None
        story = origin.story = RequestTrace(request_id, time.monotonic_ns(), origin.span)
        return cls(origin, story, submission.model.name, submission.terms.tenant, submission.recorder)

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
