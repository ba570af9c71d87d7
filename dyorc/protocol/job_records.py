"""Durable jobs, as a server reports them."""

from enum import StrEnum

import msgspec

from dyorc.errors import DyOrcError, RequestCancelledError
from dyorc.protocol.wire_errors import ErrorBody, error_from_body


class JobState(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether it is the last state of a job."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class JobRecord(msgspec.Struct, frozen=True):
    """A job at one moment. Times are Unix time in seconds, None while they are unknown."""

    id: str
    model_name: str
    state: JobState
    model_version: str | None = None
    created_s: float | None = None
    started_s: float | None = None
    finished_s: float | None = None
    expires_s: float | None = None
    num_attempts: int = 0
    error: ErrorBody | None = None

    def failure(self) -> DyOrcError | None:
        """Returns why the job has no result; None if it has one or may get one."""
        match self.state:
            case JobState.FAILED:
                return error_from_body(self.error or ErrorBody(f"job {self.id!r} failed"))
            case JobState.CANCELLED:
                return RequestCancelledError(f"job {self.id!r} was cancelled")
            case JobState.QUEUED | JobState.RUNNING | JobState.SUCCEEDED:
                return None


class JobPage(msgspec.Struct, frozen=True):
    """A part of a list of jobs.

    Attributes:
        next: Where the next one begins; None if this is the last.
    """

    jobs: list[JobRecord]
    next: str | None = None
