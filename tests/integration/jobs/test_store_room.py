"""How much room jobs may take in a store, and that they give it back."""

import asyncio
from pathlib import Path

import pytest

from dyorc.errors import CapacityError, PayloadTooLargeError, TenantLimitError
from dyorc.protocol.job_records import JobState
from dyorc.store.base import RECORD_BYTES, JobError, JobStore, Outcome, Quota
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests.deadlines import TIMEOUT_S
from tests.integration.jobs.stored_jobs import SHORT_S, a_job, claim, claim_one, done, folder_bytes, submit, wait_until_gone

pytestmark = pytest.mark.together


async def test_the_number_of_a_tenants_waiting_jobs_is_limited(store: JobStore) -> None:
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


async def test_the_bytes_of_a_tenants_jobs_and_of_all_jobs_are_limited(store: JobStore) -> None:
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


async def test_the_bytes_that_a_job_takes_follow_its_state(store: JobStore) -> None:
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


async def test_the_space_of_deleted_jobs_is_given_back(store: JobStore, tmp_path: Path) -> None:
    async def memory() -> int:
        assert isinstance(store, RedisStore)
        return int((await store._redis.info("memory"))["used_memory"])

    async def space() -> int:
        return folder_bytes(tmp_path) if isinstance(store, SqliteStore) else await memory()

    await store.submit(a_job(tenant="stays"))
    before = await space()
    jobs = await submit(store, *(a_job(bytes(4 * 2**20)) for _ in range(12)))
    assert await space() - before > 45 * 2**20
    for job in jobs:
        await store.delete("t", job.id)
    await store.expire(10)
    async with asyncio.timeout(TIMEOUT_S):
        while await space() - before > 20 * 2**20:  # Redis frees memory on a thread
            await store.wait_for_work(0.05)
    assert len(await store.page("stays", None, 10, "")) == 1


async def test_jobs_that_wait_are_counted_whosever_they_are(store: JobStore) -> None:
    assert await store.num_queued() == 0
    await submit(store, *(a_job(KILO, idempotency_key=f"{at}") for at in range(2)))
    await store.submit(a_job(KILO, tenant="other"))
    assert await store.num_queued() == 3
    held, _ = await claim(store, 2)
    assert await store.num_queued() == 1
    await store.release(held, 60.0, is_counted=False)
    assert await store.num_queued() == 2
