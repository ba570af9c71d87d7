"""The machine's clock is set while jobs wait: they run all the same."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dyorc.errors import UnknownJobError
from dyorc.store.base import MAX_DELAY_S
from dyorc.store.sqlite import SqliteStore
from tests.integration.jobs.stored_jobs import LONG_S, a_job, claim, done, submit

_DAY_S = 86_400.0


class _Clock:
    """A machine's time of day."""

    now_s = 1e9

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: _Clock) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "jobs.sqlite", clock) as opened:
        yield opened


@pytest.mark.parametrize("by_s", [-_DAY_S, -1800.0, _DAY_S])
async def test_a_queued_job_runs_at_once(store: SqliteStore, clock: _Clock, by_s: float) -> None:
    (job,) = await submit(store, a_job())
    clock.now_s += by_s
    assert [held.job.id for held in await claim(store)] == [job.id]


@pytest.mark.parametrize("by_s", [-_DAY_S, -1800.0, _DAY_S])
async def test_a_job_of_a_dead_server_runs_again(store: SqliteStore, clock: _Clock, by_s: float) -> None:
    (job,) = await submit(store, a_job())
    await claim(store)
    assert await claim(store) == []
    clock.now_s += by_s
    assert [held.job.id for held in await claim(store)] == [job.id]


async def test_a_renewed_job_stays_where_it_is(store: SqliteStore, clock: _Clock) -> None:
    await submit(store, a_job())
    held = await claim(store)
    clock.now_s -= _DAY_S
    assert await store.renew(held, LONG_S) == set()
    assert await claim(store) == []


async def test_a_retry_waits_no_longer_than_the_longest_delay(store: SqliteStore, clock: _Clock) -> None:
    (job,) = await submit(store, a_job())
    (held,) = await claim(store)
    await store.release(held, 10 * MAX_DELAY_S, is_counted=True)
    clock.now_s -= _DAY_S
    assert [again.job.id for again in await claim(store)] == [job.id]


async def test_a_webhook_that_was_put_off_is_due(store: SqliteStore, clock: _Clock) -> None:
    await submit(store, a_job(webhook="http://localhost/hook"))
    (held,) = await claim(store)
    await store.finish(held, done())
    assert len(await store.due_webhooks(10, LONG_S)) == 1
    assert await store.due_webhooks(10, LONG_S) == []
    clock.now_s -= _DAY_S
    assert len(await store.due_webhooks(10, LONG_S)) == 1


async def test_a_job_that_has_expired_does_not_come_back(store: SqliteStore, clock: _Clock) -> None:
    read, listed, unseen = await submit(store, *[a_job(ttl_s=10.0, tenant=tenant) for tenant in ("t", "u", "v")])
    for held in await claim(store, 3):
        await store.finish(held, done())
    clock.now_s += 60
    with pytest.raises(UnknownJobError):
        await store.get("t", read.id)
    assert await store.page("u", None, 10, "") == []
    clock.now_s -= 60
    with pytest.raises(UnknownJobError):
        await store.get("t", read.id)
    assert await store.page("t", None, 10, "") == []
    with pytest.raises(UnknownJobError):
        await store.get("u", listed.id)
    assert (await store.get("v", unseen.id)).id == unseen.id, "nobody has noticed"
    assert await store.expire(10) == 2
