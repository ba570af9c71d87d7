"""How much room jobs may take in a store, and that they give it back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from dyorc.errors import CapacityError, PayloadTooLargeError, StoreError, TenantLimitError
from dyorc.protocol.job_records import JobState
from dyorc.store.base import RECORD_BYTES, JobError, JobStore, Outcome, Quota
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests.deadlines import TIMEOUT_S
from tests.integration.jobs.stored_jobs import SHORT_S, a_job, claim, claim_one, done, folder_bytes, submit, wait_until_gone
from tests.redis_server import RedisServer
from tests.storm.members import SmallFolder

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


_DISK_BYTES = 16 * 2**20
_MEGA = bytes(2**20)


@pytest.fixture
def folder() -> Iterator[SmallFolder]:
    with SmallFolder(_DISK_BYTES) as found:
        if not found.can_be_full:
            pytest.skip("only root can make a folder that can be full")
        yield found


async def _submit_until_full(store: SqliteStore) -> tuple[list[str], StoreError]:
    ids: list[str] = []
    while True:
        try:
            ids.append((await store.submit(a_job(_MEGA)))[0].id)
        except StoreError as error:
            return ids, error


async def test_nothing_is_deleted_on_a_full_disk_and_the_error_says_so(folder: SmallFolder) -> None:
    async with SqliteStore(folder.path / "jobs.sqlite") as store:
        reserve = folder.path / "reserve"
        reserve.write_bytes(6 * _MEGA)
        ids, refused = await _submit_until_full(store)
        folder.fill()
        assert str(refused).endswith(": its disk is full; even to delete a job there has to be room, so free some of the disk")
        with pytest.raises(StoreError, match="its disk is full; even to delete a job there has to be room"):
            await store.delete("t", ids[0])
        assert len(await store.page("t", None, 100, "")) == len(ids), "jobs can be read"

        reserve.unlink()
        await store.delete("t", ids[0])
        await store.submit(a_job())
        assert ids[0] not in [job.id for job in await store.page("t", None, 100, "")]


async def test_what_fits_on_a_nearly_full_disk_is_not_refused_with_what_does_not(folder: SmallFolder) -> None:
    async with SqliteStore(folder.path / "jobs.sqlite") as store:
        reserve = folder.path / "reserve"
        reserve.write_bytes(bytes(2**18))
        folder.fill()
        reserve.unlink()
        both = asyncio.gather(store.submit(a_job(_MEGA)), store.note("small", b"1"), return_exceptions=True)
        too_large, noted = await both
        assert isinstance(too_large, StoreError)
        assert noted is True
        assert await store.noted("small") == b"1"


async def test_a_full_redis_deletes_jobs(redis_server: RedisServer) -> None:
    async with RedisStore(redis_server.url) as store:
        kept = (await store.submit(a_job(_MEGA)))[0]
        ended = (await store.submit(a_job(_MEGA)))[0]
        await store.cancel("t", ended.id)
        with redis.Redis(unix_socket_path=str(redis_server.socket)) as client:
            client.config_set("maxmemory", "1")
            try:
                with pytest.raises(StoreError, match="its memory is full; deleted jobs make room"):
                    await store.submit(a_job())
                for job in (kept, ended):
                    await store.delete("t", job.id)
            finally:
                client.config_set("maxmemory", "0")
        assert await store.page("t", None, 10, "") == []
        await store.submit(a_job())
