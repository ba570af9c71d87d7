"""What the time of a request can go into."""

from enum import StrEnum
from typing import NamedTuple

from dyorc.engine.request_trace import BatchTrace, CallTrace


class RequestStage(StrEnum):
    """Kinds of time, in the order in which they usually come."""

    READING = "reading"
    """It came from the client, first byte to last."""
    ADMISSION = "admission"
    """It was all there, and was read, decoded, checked and handed over. Long if the event loop is behind."""
    COLD = "cold"
    """A call waited, and when it began to wait no replica of its program took batches."""
    QUEUE = "queue"
    """A call waited for a replica."""
    WRONG_GUESS = "wrong_guess"
    """A call waited for a replica that ran nothing but guesses which turned out wrong."""
    MOVING = "moving"
    """A batch's inputs were brought in, or its outputs stored."""
    COMPUTE = "compute"
    """A program's code ran."""
    LOST = "lost"
    """Something ran that was lost with its replica, or runs again because of that."""
    ENGINE = "engine"
    """DyOrc's own time: scheduling, links, and the workflow's own code."""
    TAKING = "taking"
    """The client had parts of the answer to take."""
    WRITING = "writing"
    """The answer was on its way to the client."""


class StageInterval(NamedTuple):
    """A piece of a request's time, in nanoseconds, and the call and batch that it belongs to."""

    stage: RequestStage
    start_ns: int
    end_ns: int
    call: CallTrace | None = None
    batch: BatchTrace | None = None

    @property
    def duration_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns
