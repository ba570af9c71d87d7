"""Each job is claimed by one server at a time, in order, and for as long as its lease lasts."""

import asyncio

import pytest

from dyorc.protocol.job_records import JobState
from dyorc.store.base import Body, JobStore, Lane
from tests.integration.jobs.stored_jobs import LONG_S, SHORT_S, MakeStore, a_job, claim, claim_one, done, submit

pytestmark = pytest.mark.together


async def test_a_job_is_claimed_by_one_of_many(store: JobStore, make_store: MakeStore) -> None:
    await submit(store, *(a_job() for _ in range(30)))
    async with make_store() as other:
        found = await asyncio.gather(*(claim(one, 5) for one in [store, other] * 5))
    ids = [held.job.id for held_by_one in found for held in held_by_one]
    assert len(ids) == len(set(ids)) == 30


async def test_only_served_models_are_claimed(store: JobStore) -> None:
    await submit(store, a_job(model_name="other"), a_job())
    assert [held.job.model_name for held in await claim(store, 10)] == ["m"]
    assert [held.job.model_name for held in await claim(store, 10, models=("m", "other"))] == ["other"]


async def test_a_job_whose_lease_has_ended_goes_to_another_and_its_old_holder_changes_nothing(store: JobStore) -> None:
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
    held, other = await claim(store, 2, lease_s=1.0)
    for _ in range(4):  # longer than the lease, as the clock of the other job's lease shows
        await store.wait_for_work(0.3)
        assert await store.renew([held], 1.0) == set()
    assert await store.renew([held], LONG_S) == set()
    again = await claim_one(store, lease_s=1.0)
    assert again.job.id == other.job.id
    assert await claim(store, lease_s=LONG_S) == []


async def test_a_released_job_comes_back_at_once_and_may_count_as_an_attempt(store: JobStore) -> None:
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


async def test_each_lane_hands_out_its_own_jobs_in_order(store: JobStore) -> None:
    jobs = await submit(store, a_job(), a_job(tenant="u"), a_job(model_name="n"), a_job(), a_job(is_urgent=True))
    lanes = await store.lanes(("m", "n"), LONG_S)
    assert set(lanes) == {Lane("t", "m"), Lane("u", "m"), Lane("t", "n"), Lane("t", "m", True)}
    assert len(lanes) == 4
    wanted = [Lane("t", "m"), Lane("t", "m"), Lane("t", "m"), Lane("u", "m"), Lane("nobody", "m"), Lane("t", "m", True)]
    found = await store.claim(wanted, "me", LONG_S)
    assert [one.job.id for one in found] == [jobs[at].id for at in (0, 3, 1, 4)]
    assert await store.lanes(("m", "n"), LONG_S) == [Lane("t", "n")]
