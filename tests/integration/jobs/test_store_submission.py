"""A store keeps each submitted job once, however often it is submitted, and shows it only to its tenant."""

import asyncio

import pytest

from dyorc.errors import ConflictError, UnknownJobError
from dyorc.protocol.job_records import JobState
from dyorc.store.base import Body, JobError, JobStore, Outcome
from tests.integration.jobs.stored_jobs import LONG_S, MakeStore, a_job, claim, claim_one, done, submit

pytestmark = pytest.mark.together


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


async def test_submissions_with_one_key_at_the_same_time_are_one_job(store: JobStore, make_store: MakeStore) -> None:
    async with make_store() as other:
        found = await asyncio.gather(*(one.submit(a_job(idempotency_key="k")) for one in [store, other] * 10))
    assert len({job.id for job, _ in found}) == 1
    assert [is_new for _, is_new in found].count(True) == 1


async def test_a_job_whose_submission_is_repeated_is_one_job(store: JobStore) -> None:
    new = a_job()
    (job,) = await submit(store, new)
    assert await store.submit(new) == (job, True)
    assert len(await claim(store, 10)) == 1


async def test_a_key_is_free_again_when_its_job_is_forgotten(store: JobStore) -> None:
    (job,) = await submit(store, a_job(idempotency_key="k"))
    await store.delete("t", job.id)
    _, is_new = await store.submit(a_job(b"other", idempotency_key="k"))
    assert is_new


async def test_a_tenant_sees_no_job_of_another(store: JobStore) -> None:
    (job,) = await submit(store, a_job())
    assert await store.page("other", None, 10, "") == []
    for call in (store.get, store.result, store.cancel, store.delete):
        with pytest.raises(UnknownJobError, match=job.id):
            await call("other", job.id)
    assert (await store.get("t", job.id)).state is JobState.QUEUED


async def test_pages_list_all_jobs_newest_first(store: JobStore) -> None:
    jobs = await submit(store, *(a_job() for _ in range(5)))
    held = await claim(store, 2)
    newest = [job.id for job in reversed(jobs)]
    first = await store.page("t", None, 3, "")
    rest = await store.page("t", None, 3, first[-1].id)
    assert [job.id for job in (*first, *rest)] == newest
    running = await store.page("t", JobState.RUNNING, 10, "")
    assert {job.id for job in running} == {one.job.id for one in held}
    assert len(await store.page("t", JobState.QUEUED, 10, "")) == 3
