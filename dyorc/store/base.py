"""Records of jobs, and the contract of a job store.

A job moves ``QUEUED -> RUNNING -> SUCCEEDED | FAILED | CANCELLED``, and back to ``QUEUED`` when it is released or its server
dies. The server that runs it holds a *lease*, which must be renewed, and a *token* that grows with every claim: a server that was
believed dead and comes back has an old token, so its results are refused. A job may run more than once, but ends exactly once.

Times are Unix times in seconds, by the clock of the machine that the store is on.
"""

import hashlib
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Protocol

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.errors import CapacityError, PayloadTooLargeError, StoreError, TenantLimitError
from dyorc.protocol.job_records import JobState
from dyorc.store.lease_store import LeaseStore

MAX_LISTED = 1000
"""Jobs in one page of a list."""

UNLIMITED = 2**53
"""More than anybody needs."""

MAX_DELAY_S = 3600.0
"""No job, and no webhook, waits longer for its next attempt. A later time was written before the machine's clock was set back, so
it counts as past: otherwise nothing would happen until the clock is there again."""

RECORD_BYTES = 1024
"""Approximate size of a job besides its request or its result."""

_FULL_RETRY_S = 10.0
"""When to come back to a full store: space is freed when jobs expire or are deleted."""


class Body(msgspec.Struct, frozen=True):
    """A request or a response: bytes that are opaque to stores.

    Attributes:
        json_bytes: Length of the JSON if raw tensors follow it; None if all of it is JSON.
    """

    data: bytes
    json_bytes: int | None = None

    @property
    def num_stored_bytes(self) -> int:
        """What a job with this body takes."""
        return RECORD_BYTES + len(self.data)

    @property
    def digest(self) -> str:
        """Equal for equal bytes, split at the same place."""
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
        terms: What its runner needs to know of the tenant; opaque to stores.
        ttl_s: How long it is kept once it has ended.
        webhook: URL to notify when it has ended; empty: none.
        idempotency_key: Submitted again with the same key, it is the same job; empty: it never is.
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


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job's record, without its request and its result.

    Attributes:
        started_s: When it was first claimed.
        expires_s: When it will be forgotten; None until it has ended.
        num_attempts: How many times it was started.
    """

    id: str
    tenant: str
    model_name: str
    model_version: str
    state: JobState
    created_s: float
    ttl_s: float
    num_attempts: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    terms: str = ""
    webhook: str = ""
    started_s: float | None = None
    finished_s: float | None = None
    expires_s: float | None = None
    error: JobError | None = None


class Lane(msgspec.Struct, frozen=True):
    """Jobs that differ only in the time they were submitted, as far as scheduling is concerned."""

    tenant: str
    model_name: str
    is_urgent: bool = False


class Claim(msgspec.Struct, frozen=True):
    """A claimed job, until the lease ends."""

    job: StoredJob
    token: int
    body: Body


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended: with a result, or with an error.

    Attributes:
        num_attempts: How many times it was tried.
    """

    num_attempts: int
    result: Body | None = None
    error: JobError | None = None

    @property
    def state(self) -> JobState:
        return JobState.SUCCEEDED if self.error is None else JobState.FAILED


class DueWebhook(msgspec.Struct, frozen=True):
    """An ended job whose webhook is due.

    Attributes:
        num_attempts: How many times it was tried before.
    """

    job: StoredJob
    num_attempts: int


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be kept. A job takes `RECORD_BYTES`, plus its request until it has ended, and then its result.

    Attributes:
        max_queued: Jobs of one tenant that may wait.
        max_tenant_bytes: All jobs of one tenant together.
        max_bytes: All jobs together.
    """

    max_queued: int = UNLIMITED
    max_tenant_bytes: int = UNLIMITED
    max_bytes: int = UNLIMITED

    def check_bytes(self, num_bytes: int, tenant_bytes: int, all_bytes: int) -> None:
        """Checks that there is room for a job.

        Args:
            num_bytes: Size of the job.
            tenant_bytes: Size of its tenant's other jobs.
            all_bytes: Size of all other jobs.

        Raises:
            PayloadTooLargeError: If it can never fit.
            TenantLimitError: If its tenant keeps too much.
            CapacityError: If all tenants together do.
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
    """Keeps jobs. It is open while entered. When a call returns, its effect is durable: it survives this process.

    Every call raises `StoreError` while the store cannot be reached or written; then it has happened entirely or not at all
    (a connection may break after a command). Each may be repeated.
    """

    async def __aenter__(self) -> "JobStore": ...

    async def __aexit__(self, *_: object) -> None: ...

    async def submit(self, job: NewJob, quota: Quota = NO_QUOTA) -> tuple[StoredJob, bool]:
        """Accepts a job. Returns it, or the earlier job with its idempotency key, and whether it is new.

        Raises:
            ConflictError: If the tenant has used the idempotency key for another body.
            TenantLimitError: If too many of its jobs wait.
            DyOrcError: See `Quota.check_bytes`.
        """
        ...

    async def lanes(self, models: Collection[str], lease_s: float) -> list[Lane]:
        """Returns the lanes of these models with waiting jobs, or jobs that lost their server: their lease has ended."""
        ...

    async def claim(self, lanes: Sequence[Lane], owner: str, lease_s: float) -> list[Claim]:
        """Claims the next job of each of these lanes to run it, if there is one: first those whose lease has ended.

        Args:
            lanes: In this order; a lane that appears twice yields two jobs.
            owner: Who claims, for people.
            lease_s: How long each is protected from others. Must be equal for all who share the store.
        """
        ...

    async def renew(self, claims: Sequence[Claim], lease_s: float) -> set[str]:
        """Renews claims. Returns the ids of lost ones: cancelled, deleted, or claimed by another server."""
        ...

    async def finish(self, claim: Claim, outcome: Outcome, quota: Quota = NO_QUOTA) -> bool:
        """Ends a job. Returns False if the claim is lost: then nothing has changed.

        Raises:
            DyOrcError: See `Quota.check_bytes`, if there is no room for the result; then nothing has changed.
        """
        ...

    async def release(self, claim: Claim, delay_s: float, *, is_counted: bool) -> bool:
        """Returns a job to the queue, to be claimed after a delay of at most `MAX_DELAY_S`. Returns False if the claim is lost.

        Args:
            is_counted: Whether it counts as an attempt.
        """
        ...

    async def cancel(self, tenant: str, job_id: str) -> StoredJob:
        """Cancels a job at once, even while it runs; one that has ended stays as it is.

        Raises:
            UnknownJobError: If the tenant has no job of this id.
        """
        ...

    async def get(self, tenant: str, job_id: str) -> StoredJob:
        """Returns a job.

        Raises:
            UnknownJobError: If the tenant has no job of this id.
        """
        ...

    async def result(self, tenant: str, job_id: str) -> Body | None:
        """Returns a job's result; None if it has none.

        Raises:
            UnknownJobError: If the tenant has no job of this id.
        """
        ...

    async def page(self, tenant: str, state: JobState | None, limit: int, after: str) -> list[StoredJob]:
        """Returns a tenant's jobs, the newest first.

        Args:
            state: Only jobs in this state; None: all.
            after: Only jobs behind this id; empty: from the first.
        """
        ...

    async def delete(self, tenant: str, job_id: str) -> None:
        """Forgets a job, ended or not.

        Raises:
            UnknownJobError: If the tenant has no job of this id.
        """
        ...

    async def expire(self, limit: int) -> int:
        """Forgets expired jobs, and frees space that is no longer needed. Returns how many were forgotten."""
        ...

    async def num_bytes(self) -> int:
        """Returns the size of all jobs."""
        ...

    async def num_queued(self) -> int:
        """Returns how many jobs wait."""
        ...

    async def due_webhooks(self, limit: int, lease_s: float) -> list[DueWebhook]:
        """Returns webhooks to send now. They are due again after `lease_s`, unless reported on before."""
        ...

    async def webhook_done(self, job_id: str) -> None:
        """Notes that a webhook was delivered, or given up."""
        ...

    async def webhook_failed(self, job_id: str, delay_s: float) -> None:
        """Notes that a webhook was not delivered; it is due again after a delay."""
        ...

    async def wait_for_work(self, timeout_s: float) -> None:
        """Returns when there may be something to claim, after at most `timeout_s`, possibly for no reason."""
        ...


class NoteFence(msgspec.Struct, frozen=True):
    """Who may note: the latest of those who take turns, such as the leaders of a group.

    Attributes:
        scope: For what they take turns.
        number: Grows with each turn.
    """

    scope: str
    number: int

    @property
    def name(self) -> str:
        """Under which a store keeps the highest number of its scope."""
        return f"fence/{self.scope}"


class NoteStore(Protocol):
    """Small values that outlive the server, by name: what it has learned. Every call raises `StoreError` if the store cannot be
    used."""

    async def note(self, name: str, value: bytes, fence: NoteFence | None = None) -> bool:
        """Keeps a value in place of the last one of this name.

        Args:
            fence: Its writer's, which claims the scope, too; None: anybody may write this note.

        Returns:
            False if the scope was claimed with a higher fence; then nothing has changed.
        """
        ...

    async def claim_notes(self, fence: NoteFence) -> int:
        """Refuses notes with lower fences of this scope from now on. Returns the number of the highest fence that has claimed it:
        that of `fence`, or a higher one, for which nothing has changed."""
        ...

    async def noted(self, name: str) -> bytes | None:
        """Returns the value of this name; None if unset."""
        ...


class Store(JobStore, NoteStore, LeaseStore, Protocol):
    """Everything that a store keeps."""

    async def __aenter__(self) -> "Store": ...


def too_many(max_queued: int) -> TenantLimitError:
    """Returns the error for a tenant with too many waiting jobs."""
    return TenantLimitError(f"{max_queued} jobs wait already, which is as many as may; submit again when some have run")


def new_id() -> str:
    """Returns an id for a job, which cannot be guessed and sorts by creation time."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"


def job_of(fields: Mapping[str, Any]) -> StoredJob:
    """Builds a job from a store's values: numbers may be texts, and unknown values None or empty.

    Raises:
        StoreError: If they are not those of a job.
    """
    values = {name: value for name, value in fields.items() if value not in (None, "")}
    try:
        if "error" in values:
            values["error"] = msgspec.json.decode(values["error"])
        return msgspec.convert({"tenant": "", **values}, StoredJob, strict=False)
    except (*DECODE_ERRORS, TypeError) as error:  # msgspec reads texts only
        raise StoreError(f"the record of job {values.get('id')!r} cannot be read: {error}") from error
