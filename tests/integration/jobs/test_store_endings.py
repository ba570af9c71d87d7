"""Jobs that are cancelled, deleted or expired, and the webhooks that are due at the end."""

import pytest

from dyorc.errors import UnknownJobError
from dyorc.protocol.job_records import JobState
from dyorc.store.base import DueWebhook, JobStore
from tests.integration.jobs.stored_jobs import LONG_S, SHORT_S, a_job, claim, claim_one, done, submit, wait_until_gone

pytestmark = pytest.mark.together


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


async def test_a_webhook_is_due_from_the_end_of_its_job_until_it_is_delivered(store: JobStore) -> None:
    (job,) = await submit(store, a_job(webhook="http://w/1"))
    held = await claim_one(store)
    assert await store.due_webhooks(10, LONG_S) == []
    await store.finish(held, done())
    (due,) = await store.due_webhooks(10, SHORT_S)
    assert (due.job.id, due.job.webhook, due.job.state, due.num_attempts) == (job.id, "http://w/1", JobState.SUCCEEDED, 0)
    await webhook_due(store)  # the server that took it died
    await store.webhook_failed(job.id, SHORT_S)
    due = await webhook_due(store)
    assert due.num_attempts == 1
    await store.webhook_failed(job.id, LONG_S)
    assert await store.due_webhooks(10, LONG_S) == []
    await store.webhook_done(job.id)
    assert await store.due_webhooks(10, LONG_S) == []


async def webhook_due(store: JobStore) -> DueWebhook:
    while not (found := await store.due_webhooks(10, LONG_S)):
        await store.wait_for_work(SHORT_S)
    return found[0]


async def test_a_cancelled_job_tells_its_webhook(store: JobStore) -> None:
    (job,) = await submit(store, a_job(webhook="http://w"))
    await store.cancel("t", job.id)
    assert [due.job.id for due in await store.due_webhooks(10, LONG_S)] == [job.id]
