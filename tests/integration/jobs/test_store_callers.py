"""Callers that wait for a store are woken, served in the end, or told that it is gone."""

import asyncio
import secrets
from pathlib import Path
from typing import Any

import pytest

from dyorc.errors import CapacityError, ConflictError
from dyorc.protocol.job_records import JobState
from dyorc.store.base import Body, JobStore
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests.integration.jobs.stored_jobs import LONG_S, SHORT_S, MakeStore, a_job, claim, claim_one, done, submit
from tests.redis_server import RedisServer

pytestmark = pytest.mark.together


async def test_a_submission_wakes_those_who_wait_for_work(store: JobStore, make_store: MakeStore) -> None:
    assert await claim(store) == []
    waiting = asyncio.create_task(claim_one(store))
    async with make_store() as other:
        for one in (store, other):
            await one.submit(a_job())
    assert (await waiting).job.num_attempts == 1


async def test_everything_is_there_when_the_store_is_opened_again(make_store: MakeStore) -> None:
    async with make_store() as store:
        (job,) = await submit(store, a_job(b"body", webhook="http://w"))
    async with make_store() as store:
        held = await claim_one(store, lease_s=SHORT_S)
        assert held.body.data == b"body"
    async with make_store() as store:
        held = await claim_one(store, lease_s=SHORT_S)
        await store.finish(held, done())
    async with make_store() as store:
        assert await store.result("t", job.id) == Body(b"result")
        assert len(await store.due_webhooks(10, LONG_S)) == 1


async def test_thousands_of_jobs_are_accepted_and_finished(store: JobStore) -> None:
    num = 2000
    await asyncio.gather(*(store.submit(a_job(f"{at}".encode(), tenant=f"t{at % 7}")) for at in range(num)))
    seen: set[bytes] = set()
    while held := await claim(store, 100):
        seen |= {one.body.data for one in held}
        assert all(await asyncio.gather(*(store.finish(one, done()) for one in held)))
    assert len(seen) == num


async def test_callers_wait_for_a_connection_as_long_as_others_make_progress(
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


async def test_all_waiting_callers_are_told_that_redis_is_gone() -> None:
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


async def test_only_the_step_that_fails_is_undone(tmp_path: Path) -> None:
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
