"""Jobs, notes and leases in Redis, for servers on several machines. Each step is one atomic script; `redis_jobs.lua`,
`redis_leases.lua` and `redis_notes.lua` document the keys.

Redis is as durable as it is configured: for jobs that survive a power cut set ``appendonly yes`` and ``appendfsync always``. With
``everysec`` a power cut takes Redis about a second back, behind what it has answered: accepted jobs are gone, jobs that had ended
run again, and a fence may be given to a second leader. ``maxmemory-policy`` must be ``noeviction``. The log warns of any other
setting.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

import msgspec
import structlog
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from dyorc.errors import ConflictError, StoreError, UnknownJobError
from dyorc.protocol.job_records import JobState
from dyorc.store.base import (
    MAX_LISTED,
    NO_QUOTA,
    RECORD_BYTES,
    Body,
    Claim,
    DueWebhook,
    Lane,
    NewJob,
    NoteFence,
    Outcome,
    Quota,
    StoredJob,
    job_of,
    too_many,
)
from dyorc.store.lease_store import Lease


class ConcurrencyLimit:
    """Lets a limited number in at a time, first come, first served. For one event loop.

    Args:
        max_at_once: How many may be inside.
    """

    def __init__(self, max_at_once: int) -> None:
        self._num_free = max_at_once
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Waits for a place, and keeps it for the block."""
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    def fail_waiting(self, error: Callable[[], Exception]) -> None:
        """Raises an error in all waiting tasks."""
        for place in self._waiting:
            if not place.done():
                place.set_exception(error())
        self._waiting.clear()

    async def _enter(self) -> None:
        if self._num_free:
            self._num_free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._leave()  # the place was handed over just before
            raise

    def _leave(self) -> None:
        """Hands the place to the task that has waited longest."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._num_free += 1


@contextmanager
def _keeping_cancellation() -> Generator[None]:
    """Raises CancelledError at the end of a block in which the task was cancelled, however the block ends.

    redis-py waits with `asyncio.wait_for`, which before Python 3.12 loses a cancellation that comes when its wait is just over.
    """
    task = asyncio.current_task()
    assert task is not None
    num_cancels = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > num_cancels:
            raise asyncio.CancelledError


_log = structlog.get_logger("dyorc.store")

_OUT_OF_MEMORY = "OOM command not allowed"
"""What Redis says to a write for which it has no room, also from inside a script, where it has no error of its own."""

_JOBS = Path(__file__).with_name("redis_jobs.lua").read_text()
_LEASES = Path(__file__).with_name("redis_leases.lua").read_text()
_NOTES = Path(__file__).with_name("redis_notes.lua").read_text()

_LOSSES = {
    "appendonly": ("yes", "a crash or restart of Redis loses everything since its last snapshot"),
    "appendfsync": ("always", "a power cut of its machine loses the last second, accepted jobs included"),
    "maxmemory-policy": ("noeviction", "a full Redis throws jobs away"),
}
"""Settings of Redis: the one value that loses nothing, and what any other one does."""

_TIMEOUT_S = 5.0
_MAX_CONNECTIONS = 16
_MAX_BLOCK_S = 1.0
"""How long to wait for a signal that there is work. Leases that end, and delays, send none."""
_NUM_RETRIES = 2
_MAX_BACKOFF_S = 0.5


class RedisStore:
    """A `Store` in Redis. Servers with the same URL and prefix share their jobs.

    Connections are made when needed, and again when they break, so entering it does not fail.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``; its password is never shown.
        prefix: Begins all keys. The part in braces makes a Redis cluster keep them on one node.
    """

    def __init__(self, url: str, prefix: str = "dyorc:{jobs}:") -> None:
        self._prefix = prefix
        self._notes = f"{prefix}notes"
        parts = urlsplit(url)
        self._place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._turns = ConcurrencyLimit(_MAX_CONNECTIONS)  # so the pool is never empty, and no command waits for it with a timeout
        pool = ConnectionPool.from_url(
            url,
            max_connections=_MAX_CONNECTIONS,
            retry=Retry(ExponentialBackoff(cap=_MAX_BACKOFF_S, base=0.05), _NUM_RETRIES),
            retry_on_error=[RedisConnectionError, RedisTimeoutError],
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            health_check_interval=15,
        )
        self._redis = Redis.from_pool(pool)
        self._shas = {_JOBS: "", _LEASES: "", _NOTES: ""}
        self._woken = "0-0"
        self._is_judged = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._redis.aclose()

    async def _call(self, step: str, *values: Any) -> Any:
        return await self._in_turn(lambda: self._run(_JOBS, (self._prefix,), step, *values))

    async def _call_lease(self, name: str, step: str, *values: Any) -> Any:
        keys = f"{self._prefix}lease:{name}", f"{self._prefix}fence:{name}"
        return await self._in_turn(lambda: self._run(_LEASES, keys, step, *values))

    async def _call_note(self, fence: NoteFence, *values: Any) -> int:
        return await self._in_turn(lambda: self._run(_NOTES, (self._notes,), fence.name, fence.number, *values))

    async def _run(self, script: str, keys: Sequence[str], *values: Any) -> Any:
        try:
            return await self._redis.evalsha(self._shas[script], len(keys), *keys, *values)
        except NoScriptError:  # the first call, or Redis was restarted
            self._shas[script] = await self._redis.script_load(script)
            await self._judge()
            return await self._redis.evalsha(self._shas[script], len(keys), *keys, *values)

    async def _judge(self) -> None:
        """Warns once of settings with which Redis loses what it has accepted. One that does not show its settings, as those of
        cloud providers do not, is trusted."""
        if self._is_judged:
            return
        self._is_judged = True
        try:
            settings = await self._redis.config_get("append*") | await self._redis.config_get("maxmemory-policy")
        except RedisError:
            return
        for name, (safe, loss) in _LOSSES.items():
            if (value := settings.get(name, safe)) != safe:
                _log.warning("redis_loses_data", store=self._place, setting=f"{name} {value}", expected=safe, loss=loss)

    async def _in_turn(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """Runs a command after the earlier ones."""
        async with self._turns.slot():
            try:
                with _keeping_cancellation():
                    return await command()
            except (RedisConnectionError, RedisTimeoutError, OSError, TimeoutError) as error:
                self._turns.fail_waiting(partial(self._down, error))
                raise self._down(error) from error
            except RedisError as error:
                raise self._down(error) from error

    def _down(self, error: Exception) -> StoreError:
        fullness = "its memory is full; deleted jobs make room" if _OUT_OF_MEMORY in str(error) else ""
        return StoreError(f"the job store {self._place} cannot be used now: {type(error).__name__}: {error}", fullness)

    async def submit(self, job: NewJob, quota: Quota = NO_QUOTA) -> tuple[StoredJob, bool]:
        """See `JobStore.submit`."""
        tenant = _key(job.tenant)
        key = f"{tenant}:{sha256(job.idempotency_key.encode()).hexdigest()}" if job.idempotency_key else ""
        fields = {
            "tenant": job.tenant, "model_name": job.model_name, "model_version": job.model_version, "band": int(job.is_urgent),
            "ttl_s": job.ttl_s, "terms": job.terms, "webhook": job.webhook,
        }  # fmt: skip
        flat = [part for field in fields.items() for part in field]
        num_bytes, limits = job.body.num_stored_bytes, (quota.max_queued, quota.max_tenant_bytes, quota.max_bytes)
        kind, *reply = await self._call(
            "submit", job.id, tenant, key, job.body.digest, num_bytes, *limits, *_parts(job.body), *flat
        )
        if kind == b"conflict":
            other = reply[0].decode()
            raise ConflictError(f"idempotency key {job.idempotency_key!r} was used for another body, by job {other!r}")
        if kind == b"many":
            raise too_many(quota.max_queued)
        if kind == b"full":
            quota.check_bytes(num_bytes, *reply)
        taken = _job(reply[0])
        return taken, taken.id == job.id

    async def lanes(self, models: Collection[str], lease_s: float) -> list[Lane]:
        """See `JobStore.lanes`."""
        self._woken, rows = await self._call("lanes", _ms(lease_s), *models)
        return [Lane(unquote(tenant.decode()), model.decode(), band == b"1") for band, tenant, model in rows]

    async def claim(self, lanes: Sequence[Lane], owner: str, lease_s: float) -> list[Claim]:
        """See `JobStore.claim`."""
        flat = [part for lane in lanes for part in (int(lane.is_urgent), _key(lane.tenant), lane.model_name)]
        rows = await self._call("claim", owner, _ms(lease_s), *flat)
        return [Claim(_job(job), int(_fields(job)["token"]), _body(body)) for job, body in rows]

    async def renew(self, claims: Sequence[Claim], lease_s: float) -> set[str]:
        """See `JobStore.renew`. The server that looks for ended leases decides their length, so all have to use the same."""
        if not claims:
            return set()
        held = [part for claim in claims for part in (claim.job.id, claim.token)]
        return {job_id.decode() for job_id in await self._call("renew", *held)}

    async def finish(self, claim: Claim, outcome: Outcome, quota: Quota = NO_QUOTA) -> bool:
        """See `JobStore.finish`."""
        error = "" if outcome.error is None else msgspec.json.encode(outcome.error)
        body = () if outcome.result is None else _parts(outcome.result)
        num_bytes = RECORD_BYTES if outcome.result is None else outcome.result.num_stored_bytes
        limits = (quota.max_tenant_bytes, quota.max_bytes)
        kind, *limit = await self._call(
            "finish", claim.job.id, claim.token, outcome.state, outcome.num_attempts, error, num_bytes, *limits, *body
        )
        if kind == b"full":
            quota.check_bytes(num_bytes, *limit)
        return kind == b"ended"

    async def release(self, claim: Claim, delay_s: float, *, is_counted: bool) -> bool:
        """See `JobStore.release`."""
        return bool(await self._call("release", claim.job.id, claim.token, delay_s, int(is_counted)))

    async def cancel(self, tenant: str, job_id: str) -> StoredJob:
        """See `JobStore.cancel`."""
        return _known(await self._call("cancel", _key(tenant), job_id, RECORD_BYTES), job_id)

    async def get(self, tenant: str, job_id: str) -> StoredJob:
        """See `JobStore.get`."""
        return _known(await self._call("get", _key(tenant), job_id), job_id)

    async def result(self, tenant: str, job_id: str) -> Body | None:
        """See `JobStore.result`."""
        is_known, *reply = await self._call("result", _key(tenant), job_id)
        if not is_known:
            raise _unknown(job_id)
        return None if reply[0][0] is None else _body(reply[0])

    async def page(self, tenant: str, state: JobState | None, limit: int, after: str) -> list[StoredJob]:
        """See `JobStore.page`."""
        rows = await self._call("page", _key(tenant), state or "", min(limit, MAX_LISTED), after)
        return [_job(row) for row in rows]

    async def delete(self, tenant: str, job_id: str) -> None:
        """See `JobStore.delete`."""
        if not await self._call("delete", _key(tenant), job_id):
            raise _unknown(job_id)

    async def expire(self, limit: int) -> int:
        """See `JobStore.expire`."""
        return int(await self._call("expire", limit))

    async def num_bytes(self) -> int:
        """See `JobStore.num_bytes`."""
        return int(await self._call("num_bytes"))

    async def num_queued(self) -> int:
        """See `JobStore.num_queued`."""
        return int(await self._call("num_queued"))

    async def due_webhooks(self, limit: int, lease_s: float) -> list[DueWebhook]:
        """See `JobStore.due_webhooks`."""
        rows = await self._call("due_webhooks", limit, lease_s)
        return [DueWebhook(_job(row), int(_fields(row).get("num_webhook_attempts", 0))) for row in rows]

    async def webhook_done(self, job_id: str) -> None:
        """See `JobStore.webhook_done`."""
        await self._call("webhook_done", job_id)

    async def webhook_failed(self, job_id: str, delay_s: float) -> None:
        """See `JobStore.webhook_failed`."""
        await self._call("webhook_failed", job_id, delay_s)

    async def wait_for_work(self, timeout_s: float) -> None:
        """See `JobStore.wait_for_work`."""
        block_ms = max(1, round(min(timeout_s, _MAX_BLOCK_S) * 1e3))
        await self._in_turn(lambda: self._redis.xread({f"{self._prefix}wake": self._woken}, count=1, block=block_ms))

    async def note(self, name: str, value: bytes, fence: NoteFence | None = None) -> bool:
        """See `NoteStore.note`."""
        if fence is not None:
            return await self._call_note(fence, name, value) == fence.number
        await self._in_turn(lambda: self._redis.hset(self._notes, name, value))
        return True

    async def claim_notes(self, fence: NoteFence) -> int:
        """See `NoteStore.claim_notes`."""
        return await self._call_note(fence)

    async def noted(self, name: str) -> bytes | None:
        """See `NoteStore.noted`."""
        return await self._in_turn(lambda: self._redis.hget(self._notes, name))

    async def acquire_lease(self, name: str, owner: str, lease_s: float, above: int = 0) -> int | None:
        """See `Leases.acquire_lease`."""
        return await self._call_lease(name, "acquire", owner, _ms(lease_s), above)

    async def renew_lease(self, name: str, owner: str, lease_s: float, held: Lease) -> bool:
        """See `Leases.renew_lease`."""
        return bool(await self._call_lease(name, "renew", owner, _ms(lease_s), held.fence, held.record))

    async def release_lease(self, name: str, owner: str, fence: int) -> None:
        """See `Leases.release_lease`."""
        await self._call_lease(name, "release", owner, fence)

    async def lease(self, name: str) -> Lease:
        """See `Leases.lease`."""
        fence, record = await self._call_lease(name, "read")
        return Lease(fence=fence, record=record)


def _key(tenant: str) -> str:
    """Returns a tenant's name as a part of keys."""
    return quote(tenant, safe="")


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1e3))


def _parts(body: Body) -> tuple[bytes, str]:
    return body.data, "" if body.json_bytes is None else str(body.json_bytes)


def _body(row: Sequence[bytes]) -> Body:
    data, json_bytes = row
    return Body(data, int(json_bytes) if json_bytes else None)


def _fields(flat: Sequence[bytes]) -> Mapping[str, str]:
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _job(flat: Sequence[bytes]) -> StoredJob:
    return job_of(_fields(flat))


def _known(flat: Sequence[bytes], job_id: str) -> StoredJob:
    if not flat:
        raise _unknown(job_id)
    return _job(flat)


def _unknown(job_id: str) -> UnknownJobError:
    return UnknownJobError(f"there is no job {job_id!r}, or it no longer exists")
