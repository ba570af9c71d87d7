"""What every store of jobs promises, on SQLite and on a real Redis. Leases are short, and nothing waits for a fixed time."""

import asyncio
import contextlib
import itertools
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from dyorc.errors import CapacityError, ConflictError, PayloadTooLargeError, TenantLimitError, UnknownJobError
from dyorc.protocol.jobs import JobState
from dyorc.store import sqlite_schema
from dyorc.store.base import (
    RECORD_BYTES,
    Body,
    Claim,
    Delivery,
    Job,
    JobError,
    JobStore,
    Lane,
    NewJob,
    Outcome,
    Quota,
    new_id,
)
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests.redis_server import RedisServer

LONG_S = 60.0
SHORT_S = 0.02

Opened = Callable[[], AbstractAsyncContextManager[JobStore]]


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens one and the same store, as often as it is called."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "jobs.sqlite")
    server: RedisServer = request.getfixturevalue("redis_server")
    prefix = f"{{{secrets.token_hex(4)}}}:"
    return lambda: RedisStore(server.url, prefix)


@pytest.fixture
async def store(opened: Opened) -> AsyncIterator[JobStore]:
    async with opened() as found:
        yield found


def a_job(data: bytes = b"{}", **changes: object) -> NewJob:
    fields: dict[str, object] = {"tenant": "t", "model_name": "m", "model_version": "1", "ttl_s": LONG_S, "body": Body(data)}
    return NewJob(**(fields | {"id": new_id()} | changes))  # pyright: ignore[reportArgumentType]


async def claim(store: JobStore, max_jobs: int = 1, lease_s: float = LONG_S, models: tuple[str, ...] = ("m",)) -> list[Claim]:
    """Up to so many jobs, urgent ones first, else of all lanes in turn."""
    found: list[Claim] = []
    while len(found) < max_jobs and (lanes := await store.lanes(models, lease_s)):
        urgent = [lane for lane in lanes if lane.is_urgent]
        found += await store.claim((urgent or lanes)[: max_jobs - len(found)], "me", lease_s)
    return found


async def claim_one(store: JobStore, lease_s: float = LONG_S) -> Claim:
    """Claims as soon as there is something."""
    found: list[Claim] = []
    for _ in itertools.count():
        found = await claim(store, lease_s=lease_s)
        if found:
            break
        await store.wait_for_work(SHORT_S)
    return found[0]


def done(data: bytes = b"result", json_bytes: int | None = None) -> Outcome:
    return Outcome(num_attempts=1, result=Body(data, json_bytes))


async def submit(store: JobStore, *jobs: NewJob) -> list[Job]:
    return [(await store.submit(job))[0] for job in jobs]


async def test_a_job_goes_from_queued_to_its_result(store: JobStore) -> None:
    new = a_job(body=Body(b'{"a": 1}\x00\xff', 8), terms="terms", tenant="a:b {c}")
    job, is_new = await store.submit(new)
    assert is_new
    assert (job.state, job.started_s, job.finished_s, job.expires_s, job.error) == (JobState.QUEUED, None, None, None, None)
    (held,) = await claim(store)
    assert held.body == new.body
    assert held.job.id == job.id
    assert (held.job.terms, held.job.tenant, held.job.state, held.job.num_attempts) == ("terms", "a:b {c}", JobState.RUNNING, 1)
    assert await store.finish(held, done(b"{}\x00\xfe", 2))
    job = await store.get("a:b {c}", job.id)
    assert job.state is JobState.SUCCEEDED
    assert job.started_s is not None
    assert job.finished_s is not None
    assert job.created_s <= job.started_s <= job.finished_s
    assert job.expires_s == pytest.approx(job.finished_s + LONG_S, abs=1e-3)
    assert await store.result("a:b {c}", job.id) == Body(b"{}\x00\xfe", 2)
    assert await claim(store) == []


async def test_a_failed_job_keeps_its_error_and_has_no_result(store: JobStore) -> None:
    (job,) = await submit(store, a_job())
    error = JobError("it is “broken”", "program", False, 500)
    assert await store.finish(await claim_one(store), Outcome(num_attempts=3, error=error))
    job = await store.get("t", job.id)
    assert (job.state, job.error, job.num_attempts) == (JobState.FAILED, error, 3)
    assert await store.result("t", job.id) is None


async def test_the_same_key_and_body_is_the_same_job(store: JobStore) -> None:
    first, second = a_job(idempotency_key="k"), a_job(idempotency_key="k")
    (job,) = await submit(store, first)
    assert await store.submit(second) == (job, False)
    assert len(await claim(store, 10)) == 1


async def test_the_same_key_for_another_body_is_a_conflict(store: JobStore) -> None:
    await submit(store, a_job(idempotency_key="k"))
    with pytest.raises(ConflictError, match="'k'"):
        await store.submit(a_job(b"{ }", idempotency_key="k"))
    with pytest.raises(ConflictError):
        await store.submit(a_job(body=Body(b"{}", 1), idempotency_key="k"))
    await submit(store, a_job(b"{ }", idempotency_key="k", tenant="other"))


async def test_keys_submitted_at_the_same_time_are_one_job(store: JobStore, opened: Opened) -> None:
    async with opened() as other:
        found = await asyncio.gather(*(one.submit(a_job(idempotency_key="k")) for one in [store, other] * 10))
    assert len({job.id for job, _ in found}) == 1
    assert [is_new for _, is_new in found].count(True) == 1


async def test_submitting_again_what_may_have_been_taken_is_one_job(store: JobStore) -> None:
    new = a_job()
    (job,) = await submit(store, new)
    assert await store.submit(new) == (job, True)
    assert len(await claim(store, 10)) == 1


async def test_a_key_is_free_again_when_its_job_is_forgotten(store: JobStore) -> None:
    (job,) = await submit(store, a_job(idempotency_key="k"))
    await store.delete("t", job.id)
    _, is_new = await store.submit(a_job(b"other", idempotency_key="k"))
    assert is_new


async def test_only_so_many_of_a_tenants_jobs_may_wait(store: JobStore) -> None:
    known = a_job(idempotency_key="k")
    for new in (a_job(), known):
        await store.submit(new, quota=Quota(max_queued=2))
    with pytest.raises(TenantLimitError, match="2 jobs wait already"):
        await store.submit(a_job(), quota=Quota(max_queued=2))
    assert await store.submit(known, quota=Quota(max_queued=2)) == ((await store.get("t", known.id)), True)
    await store.submit(a_job(tenant="other"), quota=Quota(max_queued=2))
    assert len(await claim(store, 3)) == 3
    await store.submit(a_job(), quota=Quota(max_queued=2))


KILO = bytes(1024)


async def test_a_tenants_jobs_may_take_only_so_much_and_all_together(store: JobStore) -> None:
    quota = Quota(max_tenant_bytes=2 * (RECORD_BYTES + 1024), max_bytes=3 * (RECORD_BYTES + 1024))
    first = a_job(KILO, idempotency_key="k")
    for new in (first, a_job(KILO)):
        await store.submit(new, quota)
    with pytest.raises(TenantLimitError, match="takes 2048 bytes; the tenant's other jobs take 4096 of the 4096"):
        await store.submit(a_job(KILO), quota)
    assert (await store.submit(first, quota))[1]  # it is there already
    await store.submit(a_job(KILO, tenant="other"), quota)
    with pytest.raises(CapacityError, match="takes 2048 bytes; all other jobs take 6144 of the 6144") as refused:
        await store.submit(a_job(KILO, tenant="third"), quota)
    assert not isinstance(refused.value, TenantLimitError)
    with pytest.raises(PayloadTooLargeError, match=r"4097 bytes .* may keep 4096"):
        await store.submit(a_job(bytes(3073), tenant="third"), quota)
    await store.delete("t", first.id)
    await store.submit(a_job(KILO), quota)


async def test_what_a_job_takes_follows_its_state(store: JobStore) -> None:
    assert await store.num_bytes() == 0
    done_job, cancelled, failed = await submit(store, *(a_job(KILO, idempotency_key=f"{at}", ttl_s=SHORT_S) for at in range(3)))
    assert await store.num_bytes() == 3 * (RECORD_BYTES + 1024)
    for held in await claim(store, 3):
        if held.job.id == done_job.id:
            assert await store.finish(held, done(bytes(100)))
        elif held.job.id == failed.id:
            assert await store.finish(held, Outcome(num_attempts=1, error=JobError("no", "program", False, 500)))
        else:
            await store.cancel("t", cancelled.id)
    assert await store.num_bytes() == 3 * RECORD_BYTES + 100
    for job in (done_job, cancelled, failed):
        await wait_until_gone(store, job.id)
    await store.submit(a_job(b"other", idempotency_key="0"))  # takes an expired job's place before it is swept
    assert await store.num_bytes() == 3 * RECORD_BYTES + 5
    assert await store.expire(10) == 2
    assert await store.num_bytes() == RECORD_BYTES + 5


async def test_a_result_without_room_is_refused_and_changes_nothing(store: JobStore) -> None:
    quota = Quota(max_tenant_bytes=2 * (RECORD_BYTES + 1024))
    (job, _) = await submit(store, a_job(KILO), a_job(KILO))
    held = await claim_one(store)
    with pytest.raises(TenantLimitError, match="takes 2049 bytes; the tenant's other jobs take 2048 of the 4096"):
        await store.finish(held, done(bytes(1025)), quota)
    with pytest.raises(PayloadTooLargeError, match="4097"):
        await store.finish(held, done(bytes(3073)), quota)
    assert (await store.get("t", job.id)).state is JobState.RUNNING
    assert await store.num_bytes() == 2 * (RECORD_BYTES + 1024)
    assert await store.finish(held, done(KILO), quota)
    assert not await store.finish(held, done(bytes(5000)), quota)
    assert await store.num_bytes() == 2 * (RECORD_BYTES + 1024)


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


async def test_space_is_given_back(store: JobStore, tmp_path: Path) -> None:
    async def memory() -> int:
        assert isinstance(store, RedisStore)
        return int((await store._redis.info("memory"))["used_memory"])

    async def space() -> int:
        return folder_bytes(tmp_path) if isinstance(store, SqliteStore) else await memory()

    await store.submit(a_job(tenant="stays"))
    before = await space()
    jobs = await submit(store, *(a_job(bytes(4 * 2**20)) for _ in range(30)))
    assert await space() - before > 100 * 2**20
    for job in jobs:
        await store.delete("t", job.id)
    await store.expire(10)
    assert await space() - before < 20 * 2**20
    assert len(await store.page("stays", None, 10, "")) == 1


async def test_a_file_of_an_older_version_knows_what_its_jobs_take_and_gives_space_back(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA journal_mode = WAL")
        for statement in sqlite_schema._STEPS[0]:
            old.execute(statement)
        old.execute("PRAGMA user_version = 1")
        old.execute(
            "INSERT INTO jobs (id, tenant, model_name, model_version, state, is_urgent, terms, ttl_s, webhook, digest, "
            "num_attempts, token, created_s, ready_s) VALUES ('id', 't', 'm', '1', 'queued', 0, '', 60, '', '', 0, 0, 0, 0)"
        )
        old.execute("INSERT INTO bodies VALUES ('id', 0, NULL, ?)", (bytes(40 * 2**20),))
        old.commit()
    async with SqliteStore(path) as store:
        assert await store.num_bytes() == RECORD_BYTES + 40 * 2**20
        await store.delete("t", "id")
        await store.expire(1)
        assert await store.num_bytes() == 0
        assert folder_bytes(tmp_path) < 20 * 2**20


async def test_a_job_is_claimed_by_one_of_many(store: JobStore, opened: Opened) -> None:
    await submit(store, *(a_job() for _ in range(30)))
    async with opened() as other:
        found = await asyncio.gather(*(claim(one, 5) for one in [store, other] * 5))
    ids = [held.job.id for held_by_one in found for held in held_by_one]
    assert len(ids) == len(set(ids)) == 30


async def test_only_served_models_are_claimed(store: JobStore) -> None:
    await submit(store, a_job(model_name="other"), a_job())
    assert [held.job.model_name for held in await claim(store, 10)] == ["m"]
    assert [held.job.model_name for held in await claim(store, 10, models=("m", "other"))] == ["other"]


async def test_a_lease_that_ended_goes_to_somebody_else_and_the_old_holder_changes_nothing(store: JobStore) -> None:
    await submit(store, a_job())
    (old,) = await claim(store, lease_s=SHORT_S)
    new = await claim_one(store, lease_s=SHORT_S)
    assert new.token > old.token
    assert new.job.num_attempts == 2
    assert await store.renew([old], LONG_S) == {old.job.id}
    assert not await store.finish(old, done(b"old"))
    assert not await store.release(old, 0, is_counted=True)
    assert await store.finish(new, done(b"new"))
    assert not await store.finish(new, done(b"again"))
    assert await store.result("t", new.job.id) == Body(b"new")


async def test_a_renewed_lease_lasts(store: JobStore) -> None:
    await submit(store, a_job(), a_job())
    held, other = await claim(store, 2, lease_s=0.5)
    for _ in range(4):  # longer than the lease, as the clock of the other job's lease shows
        await store.wait_for_work(0.2)
        assert await store.renew([held], 0.5) == set()
    again = await claim_one(store, lease_s=0.5)
    assert again.job.id == other.job.id
    assert await claim(store, lease_s=0.5) == []


async def test_a_released_job_comes_back_at_once_and_counts_or_not(store: JobStore) -> None:
    await submit(store, a_job())
    held = await claim_one(store)
    assert await store.release(held, 0, is_counted=False)
    job = await store.get("t", held.job.id)
    assert (job.state, job.num_attempts) == (JobState.QUEUED, 0)
    (held,) = await claim(store)
    assert held.job.num_attempts == 1
    assert await store.release(held, 0, is_counted=True)
    (held,) = await claim(store)
    assert held.job.num_attempts == 2


async def test_a_job_released_for_later_waits_until_then(store: JobStore) -> None:
    await submit(store, a_job())
    await store.release(await claim_one(store), LONG_S, is_counted=True)
    assert await claim(store) == []
    (held_id,) = [job.id for job in await store.page("t", JobState.QUEUED, 10, "")]
    await submit(store, a_job())
    held = await claim_one(store)
    assert held.job.id != held_id
    await store.release(held, 0.1, is_counted=True)
    assert (await claim_one(store)).job.id == held.job.id


async def test_urgent_jobs_go_first_and_others_in_order(store: JobStore) -> None:
    jobs = await submit(store, a_job(), a_job(), a_job(is_urgent=True), a_job(is_urgent=True))
    ids = [job.id for job in jobs]
    found = [(await claim_one(store)).job.id for _ in ids]
    assert found == [ids[2], ids[3], ids[0], ids[1]]


async def test_each_lane_gives_its_own_jobs_in_order(store: JobStore) -> None:
    jobs = await submit(store, a_job(), a_job(tenant="u"), a_job(model_name="n"), a_job(), a_job(is_urgent=True))
    lanes = await store.lanes(("m", "n"), LONG_S)
    assert set(lanes) == {Lane("t", "m"), Lane("u", "m"), Lane("t", "n"), Lane("t", "m", True)}
    assert len(lanes) == 4
    wanted = [Lane("t", "m"), Lane("t", "m"), Lane("t", "m"), Lane("u", "m"), Lane("nobody", "m"), Lane("t", "m", True)]
    found = await store.claim(wanted, "me", LONG_S)
    assert [one.job.id for one in found] == [jobs[at].id for at in (0, 3, 1, 4)]
    assert await store.lanes(("m", "n"), LONG_S) == [Lane("t", "n")]


async def test_cancelling_ends_a_queued_job(store: JobStore) -> None:
    (job,) = await submit(store, a_job())
    assert (await store.cancel("t", job.id)).state is JobState.CANCELLED
    assert await claim(store) == []
    assert (await store.cancel("t", job.id)).state is JobState.CANCELLED


async def test_cancelling_ends_a_job_that_waits_to_be_tried_again(store: JobStore) -> None:
    (job,) = await submit(store, a_job())
    await store.release(await claim_one(store), SHORT_S, is_counted=True)
    assert (await store.cancel("t", job.id)).state is JobState.CANCELLED
    await store.wait_for_work(2 * SHORT_S)
    assert await claim(store) == []


async def test_cancelling_takes_a_running_job_from_its_holder(store: JobStore) -> None:
    await submit(store, a_job())
    held = await claim_one(store)
    assert (await store.cancel("t", held.job.id)).state is JobState.CANCELLED
    assert await store.renew([held], LONG_S) == {held.job.id}
    assert not await store.finish(held, done())
    assert (await store.get("t", held.job.id)).state is JobState.CANCELLED


async def test_cancelling_an_ended_job_changes_nothing(store: JobStore) -> None:
    await submit(store, a_job())
    held = await claim_one(store)
    await store.finish(held, done())
    assert (await store.cancel("t", held.job.id)).state is JobState.SUCCEEDED


async def test_a_tenant_sees_no_job_of_another(store: JobStore) -> None:
    (job,) = await submit(store, a_job())
    assert await store.page("other", None, 10, "") == []
    for call in (store.get, store.result, store.cancel, store.delete):
        with pytest.raises(UnknownJobError, match=job.id):
            await call("other", job.id)
    assert (await store.get("t", job.id)).state is JobState.QUEUED


async def test_pages_go_through_all_jobs_the_newest_first(store: JobStore) -> None:
    jobs = await submit(store, *(a_job() for _ in range(5)))
    held = await claim(store, 2)
    newest = [job.id for job in reversed(jobs)]
    first = await store.page("t", None, 3, "")
    rest = await store.page("t", None, 3, first[-1].id)
    assert [job.id for job in (*first, *rest)] == newest
    running = await store.page("t", JobState.RUNNING, 10, "")
    assert {job.id for job in running} == {one.job.id for one in held}
    assert len(await store.page("t", JobState.QUEUED, 10, "")) == 3


@pytest.mark.parametrize("is_claimed", [False, True])
async def test_a_deleted_job_is_gone(store: JobStore, is_claimed: bool) -> None:
    (job,) = await submit(store, a_job())
    held = await claim(store) if is_claimed else []
    await store.delete("t", job.id)
    assert await claim(store) == []
    assert await store.page("t", None, 10, "") == []
    with pytest.raises(UnknownJobError):
        await store.get("t", job.id)
    for one in held:
        assert await store.renew([one], LONG_S) == {job.id}
        assert not await store.finish(one, done())


async def test_an_ended_job_is_forgotten_when_its_time_is_up(store: JobStore) -> None:
    short, long = await submit(store, a_job(ttl_s=SHORT_S, webhook="http://w", idempotency_key="k"), a_job())
    for held in await claim(store, 2):
        await store.finish(held, done())
    await wait_until_gone(store, short.id)
    assert [job.id for job in await store.page("t", None, 10, "")] == [long.id]
    assert await store.expire(10) == 1
    assert await store.expire(10) == 0
    assert await store.due_webhooks(10, LONG_S) == []
    assert (await store.submit(a_job(b"other", idempotency_key="k")))[1]


async def test_an_expired_job_does_not_answer_for_its_key(store: JobStore) -> None:
    (job,) = await submit(store, a_job(ttl_s=SHORT_S, idempotency_key="k"))
    await store.finish(await claim_one(store), done())
    await wait_until_gone(store, job.id)
    assert (await store.submit(a_job(b"other", idempotency_key="k")))[1]


async def wait_until_gone(store: JobStore, job_id: str) -> None:
    with contextlib.suppress(UnknownJobError):
        while True:
            await store.get("t", job_id)
            await store.wait_for_work(SHORT_S)


async def test_a_webhook_is_due_when_its_job_has_ended_until_it_is_delivered(store: JobStore) -> None:
    (job,) = await submit(store, a_job(webhook="http://w/1"))
    held = await claim_one(store)
    assert await store.due_webhooks(10, LONG_S) == []
    await store.finish(held, done())
    (due,) = await store.due_webhooks(10, SHORT_S)
    assert (due.job.id, due.job.webhook, due.job.state, due.num_attempts) == (job.id, "http://w/1", JobState.SUCCEEDED, 0)
    await webhook_due(store)  # whoever took it died
    await store.webhook_failed(job.id, SHORT_S)
    due = await webhook_due(store)
    assert due.num_attempts == 1
    await store.webhook_failed(job.id, LONG_S)
    assert await store.due_webhooks(10, LONG_S) == []
    await store.webhook_done(job.id)
    assert await store.due_webhooks(10, LONG_S) == []


async def webhook_due(store: JobStore) -> Delivery:
    while not (found := await store.due_webhooks(10, LONG_S)):
        await store.wait_for_work(SHORT_S)
    return found[0]


async def test_a_cancelled_job_tells_its_webhook(store: JobStore) -> None:
    (job,) = await submit(store, a_job(webhook="http://w"))
    await store.cancel("t", job.id)
    assert [due.job.id for due in await store.due_webhooks(10, LONG_S)] == [job.id]


async def test_a_submission_wakes_who_waits_for_work(store: JobStore, opened: Opened) -> None:
    assert await claim(store) == []
    waiting = asyncio.create_task(claim_one(store))
    async with opened() as other:
        for one in (store, other):
            await one.submit(a_job())
    assert (await waiting).job.num_attempts == 1


async def test_everything_is_there_when_it_is_opened_again(opened: Opened) -> None:
    async with opened() as store:
        (job,) = await submit(store, a_job(b"body", webhook="http://w"))
    async with opened() as store:
        held = await claim_one(store, lease_s=SHORT_S)
        assert held.body.data == b"body"
    async with opened() as store:
        held = await claim_one(store, lease_s=SHORT_S)
        await store.finish(held, done())
    async with opened() as store:
        assert await store.result("t", job.id) == Body(b"result")
        assert len(await store.due_webhooks(10, LONG_S)) == 1


async def test_thousands_are_taken_in_and_ended(store: JobStore) -> None:
    num = 2000
    await asyncio.gather(*(store.submit(a_job(f"{at}".encode(), tenant=f"t{at % 7}")) for at in range(num)))
    seen: set[bytes] = set()
    while held := await claim(store, 100):
        seen |= {one.body.data for one in held}
        assert all(await asyncio.gather(*(store.finish(one, done()) for one in held)))
    assert len(seen) == num


async def test_who_waits_for_a_connection_waits_as_long_as_others_come_through(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the machine: here an hour passes while most of the commands wait."""
    loop = asyncio.get_running_loop()
    clock_s = loop.time
    async with RedisStore(redis_server.url, f"{{{secrets.token_hex(4)}}}:") as store:
        submissions = [asyncio.create_task(store.submit(a_job())) for _ in range(200)]
        await asyncio.wait(submissions, return_when=asyncio.FIRST_COMPLETED)
        monkeypatch.setattr(loop, "time", lambda: clock_s() + 3600)
        assert all(is_new for _, is_new in await asyncio.gather(*submissions))
        monkeypatch.undo()


async def test_all_who_wait_are_told_that_redis_is_gone() -> None:
    with RedisServer() as server:
        async with RedisStore(server.url) as store:
            await store.submit(a_job())
            server.kill()
            submissions = [store.submit(a_job()) for _ in range(200)]
            found = await asyncio.gather(*submissions, return_exceptions=True)
            assert all(isinstance(one, CapacityError) for one in found)
            server.start()
            assert all(is_new for _, is_new in await asyncio.gather(*(store.submit(a_job()) for _ in range(200))))


async def test_nothing_waits_for_a_caller_who_gives_up(store: JobStore) -> None:
    giving_up = [asyncio.create_task(store.submit(a_job())) for _ in range(20)]
    await asyncio.sleep(0)
    for task in giving_up:
        task.cancel()
    await asyncio.gather(*giving_up, return_exceptions=True)
    (job,) = await submit(store, a_job(tenant="after"))
    assert (await store.get("after", job.id)).state is JobState.QUEUED


async def test_a_step_that_fails_is_undone_alone(tmp_path: Path) -> None:
    def failing(connection: Any) -> None:
        connection.execute("DELETE FROM jobs")
        raise ConflictError("no")

    async with SqliteStore(tmp_path / "jobs.sqlite") as store:
        (job,) = await submit(store, a_job())
        steps = [store.submit(a_job()), store._batches.call(failing), store.submit(a_job())]
        found = await asyncio.gather(*steps, return_exceptions=True)
        assert [isinstance(one, ConflictError) for one in found] == [False, True, False]
        assert len(await store.page("t", None, 10, "")) == 3
        assert (await store.get("t", job.id)).state is JobState.QUEUED
