"""What is kept of a job, and what a store of jobs does.

A job moves ``QUEUED -> RUNNING -> SUCCEEDED | FAILED | CANCELLED``, and back to ``QUEUED`` when it is released or its server
dies. Whoever runs it holds a *lease* that he renews, and a *token* that is larger with every claim: a server that was believed
dead and comes back has an old token, and nothing it says counts. So a job may run more than once, but ends exactly once.

Times are Unix times in seconds, by the clock of the machine that the store is on.
"""

import hashlib
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from dyorc.errors import CapacityError, PayloadTooLargeError, TenantLimitError
from dyorc.protocol.jobs import JobState

MAX_LISTED = 1000
"""Jobs in one page of a list."""

UNLIMITED = 2**53
"""More than anybody counts."""


RECORD_BYTES = 1024
"""What a job takes beside its request or its result, about."""

_FULL_RETRY_S = 10.0
"""When to come back to a store that is full: space comes from jobs that expire or are deleted."""


class Body(msgspec.Struct, frozen=True):
    """A request or a response: bytes that stores do not look into.

    Attributes:
        json_bytes: Length of the JSON if raw tensors follow it; None if all of it is JSON.
    """

    data: bytes
    json_bytes: int | None = None

    @property
    def num_stored_bytes(self) -> int:
        """What a job takes that has this body."""
        return RECORD_BYTES + len(self.data)

    @property
    def digest(self) -> str:
        """The same for the same bytes, cut at the same place."""
        return hashlib.sha256(f"{self.json_bytes} ".encode() + self.data).hexdigest()


class JobError(msgspec.Struct, frozen=True):
    """Why a job failed.

    Attributes:
        text: For people.
        code: As in `dyorc.errors`.
        status: The HTTP status that the request would have got.
    """

    text: str
    code: str
    retryable: bool
    status: int


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is submitted.

    Attributes:
        id: From `new_id`.
        is_urgent: Goes before all that are not.
        terms: What the one who runs it has to know of the tenant; stores do not look into it.
        ttl_s: How long it is kept once it has ended.
        webhook: Who is told when it has ended; empty: nobody.
        idempotency_key: Submitted again with the same one, it is the same job; empty: it never is.
    """

    id: str
    tenant: str
    model_name: str
    model_version: str
    body: Body
    ttl_s: float
    is_urgent: bool = False
    terms: str = ""
    webhook: str = ""
    idempotency_key: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job, but for its request and its result.

    Attributes:
        started_s: When it was claimed first.
        expires_s: When it will be forgotten; None until it has ended.
        num_attempts: How often somebody began to run it.
    """

    id: str
    tenant: str
    model_name: str
    model_version: str
    state: JobState
    created_s: float
    ttl_s: float
    num_attempts: int
    terms: str = ""
    webhook: str = ""
    started_s: float | None = None
    finished_s: float | None = None
    expires_s: float | None = None
    error: JobError | None = None


class Lane(msgspec.Struct, frozen=True):
    """Jobs of which one is as good as the other, but for the time they were submitted."""

    tenant: str
    model_name: str
    is_urgent: bool = False


class Claim(msgspec.Struct, frozen=True):
    """A job in the hands of who claimed it, until the lease ends."""

    job: Job
    token: int
    body: Body


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended: with a result, or with an error.

    Attributes:
        num_attempts: How often it was tried.
    """

    num_attempts: int
    result: Body | None = None
    error: JobError | None = None

    @property
    def state(self) -> JobState:
        return JobState.SUCCEEDED if self.error is None else JobState.FAILED


class Delivery(msgspec.Struct, frozen=True):
    """An ended job whose webhook is due.

    Attributes:
        num_attempts: How often it was tried before.
    """

    job: Job
    num_attempts: int


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be kept. A job takes `RECORD_BYTES`, and its request until it has ended, and then its result.

    Attributes:
        max_queued: Jobs of one tenant that may wait.
        max_tenant_bytes: All jobs of one tenant together.
        max_bytes: All jobs together.
    """

    max_queued: int = UNLIMITED
    max_tenant_bytes: int = UNLIMITED
    max_bytes: int = UNLIMITED

    def check_bytes(self, num_bytes: int, tenant_bytes: int, all_bytes: int) -> None:
        """Does nothing if there is room for a job.

        Args:
            num_bytes: What the job will take.
            tenant_bytes: What its tenant's other jobs take.
            all_bytes: What all other jobs take.

        Raises:
            PayloadTooLargeError: If there never is.
            TenantLimitError: If its tenant keeps too much.
            CapacityError: If all together do.
        """
        largest = min(self.max_tenant_bytes, self.max_bytes)
        if num_bytes > largest:
            raise PayloadTooLargeError(f"the job takes {num_bytes} bytes of the job store, where one tenant may keep {largest}")
        if tenant_bytes + num_bytes > self.max_tenant_bytes:
            raise TenantLimitError(
                f"the job takes {num_bytes} bytes; the tenant's other jobs take {tenant_bytes} of the {self.max_tenant_bytes} "
                "that it may keep; delete jobs that have ended, or come back when they have expired",
                _FULL_RETRY_S,
            )
        if all_bytes + num_bytes > self.max_bytes:
            raise CapacityError(
                f"the job takes {num_bytes} bytes; all other jobs take {all_bytes} of the {self.max_bytes} that the store keeps",
                _FULL_RETRY_S,
            )


NO_QUOTA = Quota()


class JobStore(Protocol):
    """Keeps jobs. Entered, it is open. What returns has happened for good: it survives this process.

    Every call raises `StoreError` while the store cannot be reached or written; then nothing of it has happened, or all of it
    (a connection may break behind a command). Each may be repeated.
    """

    async def __aenter__(self) -> "JobStore": ...

    async def __aexit__(self, *_: object) -> None: ...

    async def submit(self, job: NewJob, quota: Quota = NO_QUOTA) -> tuple[Job, bool]:
        """Takes a job in. Returns it, or the one that its idempotency key stands for, and whether it is the new one.

        Raises:
            ConflictError: If the tenant has used the idempotency key for another body.
            TenantLimitError: If too many of its jobs wait.
            DyOrcError: As `Quota.check_bytes`.
        """
        ...

    async def lanes(self, models: Collection[str], lease_s: float) -> list[Lane]:
        """Lanes of these models in which a job waits, or has lost its server: its lease has ended."""
        ...

    async def claim(self, lanes: Sequence[Lane], owner: str, lease_s: float) -> list[Claim]:
        """Takes the next job of each of these lanes to run it, if there is one: first those whose lease has ended.

        Args:
            lanes: In this order; one that is there twice gives two jobs.
            owner: Who claims, for people.
            lease_s: How long each is safe from others. The same for all who share the store.
        """
        ...

    async def renew(self, claims: Sequence[Claim], lease_s: float) -> set[str]:
        """Holds on to claims. Gives the ids of those that are lost: cancelled, deleted, or claimed by somebody else."""
        ...

    async def finish(self, claim: Claim, outcome: Outcome, quota: Quota = NO_QUOTA) -> bool:
        """Ends a job. False if the claim is lost: then nothing has changed.

        Raises:
            DyOrcError: As `Quota.check_bytes` if there is no room for the result; then nothing has changed.
        """
        ...

    async def release(self, claim: Claim, delay_s: float, *, is_counted: bool) -> bool:
        """Puts a job back for others, after a while. False if the claim is lost.

        Args:
            is_counted: Whether it was an attempt.
        """
        ...

    async def cancel(self, tenant: str, job_id: str) -> Job:
        """Ends a job at once, whoever runs it; one that has ended stays as it is.

        Raises:
            UnknownJobError: If the tenant has none of this id.
        """
        ...

    async def get(self, tenant: str, job_id: str) -> Job:
        """A job.

        Raises:
            UnknownJobError: If the tenant has none of this id.
        """
        ...

    async def result(self, tenant: str, job_id: str) -> Body | None:
        """What a job gave; None if it gave nothing.

        Raises:
            UnknownJobError: If the tenant has none of this id.
        """
        ...

    async def page(self, tenant: str, state: JobState | None, limit: int, after: str) -> list[Job]:
        """A tenant's jobs, the newest first.

        Args:
            state: Only those in it; None: all.
            after: Only those that come behind this id; empty: from the first.
        """
        ...

    async def delete(self, tenant: str, job_id: str) -> None:
        """Forgets a job, ended or not.

        Raises:
            UnknownJobError: If the tenant has none of this id.
        """
        ...

    async def expire(self, limit: int) -> int:
        """Forgets jobs whose time is up, and gives back space that nothing needs any more. Returns how many were forgotten."""
        ...

    async def num_bytes(self) -> int:
        """What all jobs take."""
        ...

    async def due_webhooks(self, limit: int, lease_s: float) -> list[Delivery]:
        """Webhooks to send now. They are due again after `lease_s`, unless something is said of them before."""
        ...

    async def webhook_done(self, job_id: str) -> None:
        """The webhook was delivered, or given up."""
        ...

    async def webhook_failed(self, job_id: str, delay_s: float) -> None:
        """It was not delivered; it is due again after a while."""
        ...

    async def wait_for_work(self, timeout_s: float) -> None:
        """Returns when there may be something to claim, at the latest after `timeout_s`, or earlier for no reason."""
        ...


def too_many(max_queued: int) -> TenantLimitError:
    """What a tenant is told who has too many jobs waiting."""
    return TenantLimitError(f"{max_queued} jobs wait already, which is as many as may; submit again when some have run")


def new_id() -> str:
    """An id for a job, that nobody guesses and that sorts by the time it was made."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"


def job_of(fields: Mapping[str, Any]) -> Job:
    """A job from what a store has: numbers may be texts, and what is unknown None or empty."""
    found = {name: value for name, value in fields.items() if value not in (None, "")}
    if "error" in found:
        found["error"] = msgspec.json.decode(found["error"])
    return msgspec.convert({"tenant": "", **found}, Job, strict=False)
