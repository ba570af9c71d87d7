"""Requests that a gateway has taken and not answered yet."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dyorc.answering.requests_in_flight import RequestInFlight
from dyorc.cluster.cluster_messages import SubmitRequest
from dyorc.core.tensor import TensorRef
from dyorc.models.submission import Submission
from dyorc.transport.codec import ColumnHeader


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request.

    Attributes:
        refs: Its inputs.
        deadline_ns: When its answer must be there.
        generation: The connection by which it was sent last; 0: none yet.
        is_answered: Whether its answer has come, and is being read where it lies.
        has_effect: Whether it may have had an effect that must not be had twice.
        parts: Those that have come by this connection and were not taken yet.
    """

    submission: Submission
    pending: RequestInFlight
    refs: tuple[TensorRef, ...]
    deadline_ns: int
    generation: int = 0
    is_answered: bool = False
    has_effect: bool = False
    parts: set[int] = field(default_factory=set[int])

    def as_message(self, request_id: int, columns: Sequence[ColumnHeader]) -> SubmitRequest:
        """Returns what is said of it."""
        submission, terms, recorded = self.submission, self.submission.terms, self.pending.recorded
        return SubmitRequest(
            request_id,
            *submission.model,
            tuple(columns),
            submission.statics,
            (self.deadline_ns - time.monotonic_ns()) / 1e9,
            terms.priority,
            terms.tenant,
            terms.weight,
            recorded is not None,
            None if recorded is None else recorded.origin.span,
            terms.waits_for_effects,
        )
