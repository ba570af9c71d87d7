"""Requests that a gateway has taken and not answered yet, and their inputs in its arena.

Inputs are kept until their request is over and nothing reads them. Only the orchestrator knows what still reads them: a batch may
run although its request was cancelled. When the orchestrator is lost, its replicas may read on for a while.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dyorc.answering.requests_in_flight import RequestInFlight
from dyorc.cluster.cluster_messages import SubmitRequest
from dyorc.core.request import RequestFacts
from dyorc.core.tensor import TensorRef, blocks_of
from dyorc.models.submission import Submission
from dyorc.transport.column_codec import ColumnHeader


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request.

    Attributes:
        refs: Its inputs.
        deadline_ns: When its answer must be there.
        generation: The connection on which it was sent last; 0: none yet.
        is_answered: Whether its answer has come, and is being read in place.
        has_effect: Whether it may have had an effect that must not happen twice.
        moved_ns: When it was sent to a leader that was found after it had come; 0: the first that it met has it.
        parts: Parts that have come on this connection and were not taken yet.
    """

    submission: Submission
    in_flight: RequestInFlight
    refs: tuple[TensorRef, ...]
    deadline_ns: int
    generation: int = 0
    is_answered: bool = False
    has_effect: bool = False
    moved_ns: int = 0
    parts: set[int] = field(default_factory=set[int])

    def announce_effect(self) -> None:
        """Notes that it is about to have an effect that must not happen twice, and lets its sender know."""
        self.has_effect = True
        if (effect_begins := self.submission.effect_begins) is not None:
            effect_begins()

    def as_message(self, request_id: int, columns: Sequence[ColumnHeader]) -> SubmitRequest:
        """Returns the message that submits it."""
        submission, terms, recorded = self.submission, self.submission.terms, self.in_flight.recorded
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
            terms.is_shadow,
            RequestFacts() if submission.facts is None else submission.facts(),
        )


_LINGER_S = 5.0
"""How long batches of a lost orchestrator may still read."""


@dataclass(slots=True)
class _RetainedInputs:
    is_wanted: bool = True
    is_read: bool = True


class InputRetention:
    """The blocks that must stay. `free` frees a block."""

    def __init__(self, free: Callable[[int], object]) -> None:
        self._free = free
        self._kept: dict[int, _RetainedInputs] = {}

    @property
    def is_read(self) -> bool:
        """Whether inputs of a request that is over may still be read: an effect that comes after the answer reads them."""
        return any(not kept.is_wanted for kept in self._kept.values())

    def keep(self, refs: Sequence[TensorRef]) -> None:
        """Keeps the inputs of a new request."""
        for _, block in blocks_of(refs):
            self._kept[block] = _RetainedInputs()

    def end_request(self, refs: Sequence[TensorRef], *, was_sent: bool) -> None:
        """Notes that a request is over.

        Args:
            was_sent: Whether the orchestrator had it, and so reports when its inputs are read.
        """
        for _, block in blocks_of(refs):
            if (kept := self._kept.get(block)) is not None:
                kept.is_wanted = False
                kept.is_read = kept.is_read and was_sent
                self._settle(block, kept)

    def release(self, blocks: Sequence[int]) -> None:
        """Notes that nothing reads these blocks now."""
        for block in blocks:
            if (kept := self._kept.get(block)) is not None:
                kept.is_read = False
                self._settle(block, kept)

    def resubmit(self, refs: Sequence[TensorRef]) -> None:
        """Notes that a request is submitted again, to another orchestrator."""
        for _, block in blocks_of(refs):
            if block in self._kept:
                self._kept[block] = _RetainedInputs()

    def lose_orchestrator(self) -> None:
        """Notes that the orchestrator is gone: soon nothing reads what it had, except what is submitted again."""
        if self._kept:
            asyncio.get_running_loop().call_later(_LINGER_S, self._end_reading, list(self._kept.items()))

    def _end_reading(self, lost: Sequence[tuple[int, _RetainedInputs]]) -> None:
        for block, kept in lost:
            if self._kept.get(block) is kept:  # not submitted again
                kept.is_read = False
                self._settle(block, kept)

    def _settle(self, block: int, kept: _RetainedInputs) -> None:
        if not kept.is_wanted and not kept.is_read:
            del self._kept[block]
            self._free(block)
