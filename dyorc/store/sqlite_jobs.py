"""The steps of a SQLite store, as functions of a connection inside a transaction. Each raises before it writes, or writes all."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from dyorc.errors import ConflictError, UnknownJobError
from dyorc.protocol.job_records import JobState
from dyorc.store.base import (
    MAX_DELAY_S,
    MAX_LISTED,
    RECORD_BYTES,
    Body,
    Claim,
    DueWebhook,
    Lane,
    NewJob,
    Outcome,
    Quota,
    StoredJob,
    job_of,
    too_many,
)
from dyorc.store.sqlite_schema import REQUEST, RESULT, SqlConnection

_FIELDS = (
    "id, tenant, model_name, model_version, state, created_s, ttl_s, num_attempts, terms, webhook, started_s, finished_s, "
    "expires_s, error"
)
_NAMES = _FIELDS.split(", ")
_FINAL = "('succeeded', 'failed', 'cancelled')"
_HELD = "id = ? AND token = ? AND state = 'running'"


def submit(connection: SqlConnection, job: NewJob, quota: Quota, now_s: float) -> tuple[StoredJob, bool]:
    """See `JobStore.submit`."""
    digest = job.body.digest
    stored = connection.execute(
        "SELECT id, digest, expires_s FROM jobs WHERE tenant = ? AND (id = ? OR idempotency_key = ?)",
        (job.tenant, job.id, job.idempotency_key or None),
    ).fetchone()
    if stored is not None and stored[2] is not None and stored[2] <= now_s:
        _forget(connection, stored[0])  # it has expired, and would be swept soon
        stored = None
    if stored is not None:
        if stored[1] != digest:
            raise ConflictError(f"idempotency key {job.idempotency_key!r} was used for another body, by job {stored[0]!r}")
        return read(connection, job.tenant, stored[0], now_s), stored[0] == job.id
    waiting = "SELECT 1 FROM jobs WHERE tenant = ? AND state = 'queued' LIMIT ?"
    if connection.execute(f"SELECT COUNT(*) FROM ({waiting})", (job.tenant, quota.max_queued)).fetchone()[0] >= quota.max_queued:
        raise too_many(quota.max_queued)
    quota.check_bytes(job.body.num_stored_bytes, *_usage(connection, job.tenant))
    row = {
        "id": job.id, "tenant": job.tenant, "model_name": job.model_name, "model_version": job.model_version, "state": "queued",
        "is_urgent": job.is_urgent, "terms": job.terms, "ttl_s": job.ttl_s, "webhook": job.webhook,
        "idempotency_key": job.idempotency_key or None, "digest": digest, "num_attempts": 0, "token": 0, "created_s": now_s,
        "ready_s": 0.0, "num_bytes": job.body.num_stored_bytes,
    }  # fmt: skip
    connection.execute(f"INSERT INTO jobs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
    _put_body(connection, job.id, REQUEST, job.body)
    return read(connection, job.tenant, job.id, now_s), True


_LAPSED = "state = 'running' AND (lease_until_s <= ? OR lease_until_s > ?)"
"""Its server has not renewed the lease in time, or not since the clock was set back: then it ends later than any lease can."""
_LATEST_LEASE_S = 60.0
"""No lease counts as one of before the clock was set back if it ends sooner: servers whose settings change one after another have
different ones for a while."""
_READY = "(ready_s <= ? OR ready_s > ?)"
"""It is time for the next attempt, or the clock was set back (`MAX_DELAY_S`)."""


def lanes(connection: SqlConnection, models: Collection[str], lease_s: float, now_s: float) -> list[Lane]:
    """See `JobStore.lanes`."""
    lapsed = connection.execute(
        f"SELECT DISTINCT tenant, model_name, is_urgent FROM jobs WHERE {_LAPSED}", (now_s, now_s + max(lease_s, _LATEST_LEASE_S))
    ).fetchall()
    claimable = dict.fromkeys(Lane(tenant, model, bool(is_urgent)) for tenant, model, is_urgent in lapsed)
    for is_urgent in (True, False):
        claimable |= dict.fromkeys(lane for lane in _queued(connection, is_urgent) if _is_ready(connection, lane, now_s))
    return [lane for lane in claimable if lane.model_name in models]


def _queued(connection: SqlConnection, is_urgent: bool) -> Iterator[Lane]:
    """Yields lanes with queued jobs. Steps over the index from lane to lane, not from job to job."""
    last = ("", "")
    while True:
        row = connection.execute(
            f"SELECT tenant, model_name FROM jobs WHERE state = 'queued' AND is_urgent = {int(is_urgent)} "
            "AND (tenant, model_name) > (?, ?) ORDER BY tenant, model_name LIMIT 1",
            last,
        ).fetchone()
        if row is None:
            return
        last = row
        yield Lane(row[0], row[1], is_urgent)


def _is_ready(connection: SqlConnection, lane: Lane, now_s: float) -> bool:
    return _next(connection, lane, now_s) is not None


def _next(connection: SqlConnection, lane: Lane, now_s: float) -> str | None:
    row = connection.execute(
        f"SELECT id FROM jobs WHERE state = 'queued' AND is_urgent = {int(lane.is_urgent)} AND tenant = ? AND model_name = ? "
        f"AND {_READY} ORDER BY id LIMIT 1",
        (lane.tenant, lane.model_name, now_s, now_s + MAX_DELAY_S),
    ).fetchone()
    return None if row is None else row[0]


def claim(connection: SqlConnection, lanes: Sequence[Lane], owner: str, lease_s: float, now_s: float) -> list[Claim]:
    """See `JobStore.claim`."""
    claims: list[Claim] = []
    for lane in lanes:
        job_id = _lapsed(connection, lane, lease_s, now_s) or _next(connection, lane, now_s)
        if job_id is not None:
            claims.append(_take(connection, job_id, owner, lease_s, now_s))
    return claims


def _lapsed(connection: SqlConnection, lane: Lane, lease_s: float, now_s: float) -> str | None:
    row = connection.execute(
        f"SELECT id FROM jobs WHERE {_LAPSED} AND tenant = ? AND model_name = ? AND is_urgent = ? LIMIT 1",
        (now_s, now_s + max(lease_s, _LATEST_LEASE_S), lane.tenant, lane.model_name, lane.is_urgent),
    ).fetchone()
    return None if row is None else row[0]


def _take(connection: SqlConnection, job_id: str, owner: str, lease_s: float, now_s: float) -> Claim:
    connection.execute(
        "UPDATE jobs SET state = 'running', token = token + 1, num_attempts = num_attempts + 1, owner = ?, lease_until_s = ?, "
        "started_s = COALESCE(started_s, ?) WHERE id = ?",
        (owner, now_s + lease_s, now_s, job_id),
    )
    row = connection.execute(f"SELECT {_FIELDS}, token FROM jobs WHERE id = ?", (job_id,)).fetchone()
    body = _body(connection, job_id, REQUEST)
    assert body is not None
    return Claim(job_of(dict(zip(_NAMES, row[:-1], strict=True))), row[-1], body)


def renew(connection: SqlConnection, claims: Sequence[Claim], lease_s: float, now_s: float) -> set[str]:
    """See `JobStore.renew`."""
    lost: set[str] = set()
    for claim in claims:
        held = connection.execute(
            f"UPDATE jobs SET lease_until_s = ? WHERE {_HELD}", (now_s + lease_s, claim.job.id, claim.token)
        )
        if not held.rowcount:
            lost.add(claim.job.id)
    return lost


def finish(connection: SqlConnection, held: Claim, outcome: Outcome, quota: Quota, now_s: float) -> bool:
    """See `JobStore.finish`."""
    error = None if outcome.error is None else msgspec.json.encode(outcome.error).decode()
    ended = connection.execute(
        "UPDATE jobs SET state = ?, error = ?, num_attempts = ?, finished_s = ?, expires_s = ? + ttl_s, lease_until_s = NULL "
        f"WHERE {_HELD}",
        (outcome.state, error, outcome.num_attempts, now_s, now_s, held.job.id, held.token),
    )
    if not ended.rowcount:
        return False
    _after_end(connection, held.job.id, held.job.webhook, now_s)
    if outcome.result is not None:
        _keep_result(connection, held.job, outcome.result, quota)
    return True


def _keep_result(connection: SqlConnection, job: StoredJob, result: Body, quota: Quota) -> None:
    """Stores the result of a job that has just ended. If it raises, the end is undone, too."""
    tenant_bytes, all_bytes = _usage(connection, job.tenant)
    quota.check_bytes(result.num_stored_bytes, tenant_bytes - RECORD_BYTES, all_bytes - RECORD_BYTES)
    _put_body(connection, job.id, RESULT, result)
    connection.execute("UPDATE jobs SET num_bytes = ? WHERE id = ?", (result.num_stored_bytes, job.id))


def release(connection: SqlConnection, held: Claim, delay_s: float, is_counted: bool, now_s: float) -> bool:
    """See `JobStore.release`."""
    released = connection.execute(
        "UPDATE jobs SET state = 'queued', num_attempts = num_attempts - ?, ready_s = ?, lease_until_s = NULL, owner = NULL "
        f"WHERE {_HELD}",
        (0 if is_counted else 1, now_s + min(delay_s, MAX_DELAY_S), held.job.id, held.token),
    )
    return bool(released.rowcount)


def cancel(connection: SqlConnection, tenant: str, job_id: str, now_s: float) -> StoredJob:
    """See `JobStore.cancel`."""
    job = read(connection, tenant, job_id, now_s)
    if job.state.is_final:
        return job
    connection.execute(
        "UPDATE jobs SET state = 'cancelled', finished_s = ?1, expires_s = ?1 + ttl_s, lease_until_s = NULL WHERE id = ?2",
        (now_s, job_id),
    )
    _after_end(connection, job_id, job.webhook, now_s)
    return read(connection, tenant, job_id, now_s)


def _after_end(connection: SqlConnection, job_id: str, webhook: str, now_s: float) -> None:
    connection.execute("DELETE FROM bodies WHERE job_id = ? AND kind = ?", (job_id, REQUEST))
    connection.execute("UPDATE jobs SET num_bytes = ? WHERE id = ?", (RECORD_BYTES, job_id))
    if webhook:
        connection.execute("INSERT INTO webhooks VALUES (?, ?, 0)", (job_id, now_s))


def read(connection: SqlConnection, tenant: str, job_id: str, now_s: float) -> StoredJob:
    """See `JobStore.get`."""
    row = connection.execute(
        f"SELECT {_FIELDS} FROM jobs WHERE id = ? AND tenant = ? AND (expires_s IS NULL OR expires_s > ?)",
        (job_id, tenant, now_s),
    ).fetchone()
    if row is None:
        _hide(connection, "id = ? AND tenant = ?", job_id, tenant, now_s)
        raise UnknownJobError(f"there is no job {job_id!r}, or it no longer exists")
    return job_of(dict(zip(_NAMES, row, strict=True)))


def _hide(connection: SqlConnection, where: str, *values: Any) -> None:
    """Makes jobs that have expired stay so until they are removed: they would be there again if the clock were set back."""
    connection.execute(f"UPDATE jobs SET expires_s = 0 WHERE {where} AND expires_s <= ? AND expires_s > 0", values)


def result(connection: SqlConnection, tenant: str, job_id: str, now_s: float) -> Body | None:
    """See `JobStore.result`."""
    read(connection, tenant, job_id, now_s)
    return _body(connection, job_id, RESULT)


def page(connection: SqlConnection, tenant: str, state: JobState | None, limit: int, after: str, now_s: float) -> list[StoredJob]:
    """See `JobStore.page`."""
    _hide(connection, "tenant = ?", tenant, now_s)
    where, values = "tenant = ? AND (expires_s IS NULL OR expires_s > ?)", [tenant, now_s]
    for condition, value in (("state = ?", state), ("id < ?", after)):
        if value:
            where += f" AND {condition}"
            values.append(value)
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM jobs WHERE {where} ORDER BY id DESC LIMIT ?", (*values, min(limit, MAX_LISTED))
    )
    return [job_of(dict(zip(_NAMES, row, strict=True))) for row in rows.fetchall()]


def delete(connection: SqlConnection, tenant: str, job_id: str, now_s: float) -> None:
    """See `JobStore.delete`."""
    read(connection, tenant, job_id, now_s)
    _forget(connection, job_id)


def expire(connection: SqlConnection, limit: int, now_s: float) -> int:
    """See `JobStore.expire`."""
    rows = connection.execute("SELECT id FROM jobs WHERE expires_s <= ? LIMIT ?", (now_s, limit)).fetchall()
    for row in rows:
        _forget(connection, row[0])
    return len(rows)


def num_bytes(connection: SqlConnection, now_s: float) -> int:
    """See `JobStore.num_bytes`."""
    return connection.execute("SELECT COALESCE(SUM(num_bytes), 0) FROM usage").fetchone()[0]


def num_queued(connection: SqlConnection, now_s: float) -> int:
    """See `JobStore.num_queued`."""
    return connection.execute("SELECT COUNT(*) FROM jobs WHERE state = 'queued'").fetchone()[0]


def _usage(connection: SqlConnection, tenant: str) -> tuple[int, int]:
    """Returns the size of a tenant's jobs, and of all jobs."""
    own = connection.execute("SELECT num_bytes FROM usage WHERE tenant = ?", (tenant,)).fetchone()
    return (0 if own is None else own[0]), num_bytes(connection, 0.0)


def _forget(connection: SqlConnection, job_id: str) -> None:
    connection.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
    connection.execute("DELETE FROM bodies WHERE job_id = ?", (job_id,))
    connection.execute("DELETE FROM webhooks WHERE job_id = ?", (job_id,))


def due_webhooks(connection: SqlConnection, limit: int, lease_s: float, now_s: float) -> list[DueWebhook]:
    """See `JobStore.due_webhooks`."""
    fields = ", ".join(f"jobs.{name}" for name in _NAMES)
    rows = connection.execute(
        f"SELECT {fields}, webhooks.num_attempts FROM webhooks JOIN jobs ON jobs.id = job_id "
        "WHERE due_s <= ? OR due_s > ? ORDER BY due_s LIMIT ?",
        (now_s, now_s + MAX_DELAY_S, limit),
    ).fetchall()
    webhooks = [DueWebhook(job_of(dict(zip(_NAMES, row[:-1], strict=True))), row[-1]) for row in rows]
    for webhook in webhooks:
        postpone(connection, webhook.job.id, lease_s, now_s)
    return webhooks


def postpone(connection: SqlConnection, job_id: str, delay_s: float, now_s: float) -> None:
    """Makes a webhook due later."""
    connection.execute("UPDATE webhooks SET due_s = ? WHERE job_id = ?", (now_s + delay_s, job_id))


def count_webhook_failure(connection: SqlConnection, job_id: str, delay_s: float, now_s: float) -> None:
    """See `JobStore.webhook_failed`."""
    postpone(connection, job_id, delay_s, now_s)
    connection.execute("UPDATE webhooks SET num_attempts = num_attempts + 1 WHERE job_id = ?", (job_id,))


def forget_webhook(connection: SqlConnection, job_id: str) -> None:
    """See `JobStore.webhook_done`."""
    connection.execute("DELETE FROM webhooks WHERE job_id = ?", (job_id,))


def _put_body(connection: SqlConnection, job_id: str, kind: int, body: Body) -> None:
    connection.execute("INSERT INTO bodies VALUES (?, ?, ?, ?)", (job_id, kind, body.json_bytes, body.data))


def _body(connection: SqlConnection, job_id: str, kind: int) -> Body | None:
    row: Any = connection.execute("SELECT data, json_bytes FROM bodies WHERE job_id = ? AND kind = ?", (job_id, kind)).fetchone()
    return None if row is None else Body(*row)
