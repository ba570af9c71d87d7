"""What a store promises of leases, for each kind of store."""

import asyncio
import secrets
from pathlib import Path

import pytest
import redis.asyncio

from dyorc.store.lease_store import Lease
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests.integration.jobs.stored_jobs import LONG_S, SHORT_S, MakeStore
from tests.redis_server import RedisServer

pytestmark = pytest.mark.together


async def test_one_holds_a_lease_at_a_time(make_store: MakeStore) -> None:
    async with make_store() as store, make_store() as again:
        assert await store.acquire_lease("lead", "one", LONG_S) == 1
        assert await again.acquire_lease("lead", "other", LONG_S) is None
        assert await again.acquire_lease("lead", "one", LONG_S) == 1, "it had not heard of the first answer"
        assert await again.acquire_lease("another", "other", LONG_S) == 1
        assert await again.renew_lease("lead", "other", LONG_S, Lease(fence=1, record=b"mine")) is False
        assert await store.renew_lease("lead", "one", LONG_S, Lease(fence=1, record=b"\x00here")) is True
        assert await again.lease("lead") == Lease(fence=1, record=b"\x00here")


async def test_a_lease_that_ends_leaves_its_fence_behind(make_store: MakeStore) -> None:
    async with make_store() as store:
        await store.acquire_lease("lead", "one", LONG_S)
        await store.release_lease("lead", "other", 1)
        assert await store.acquire_lease("lead", "other", LONG_S) is None
        await store.release_lease("lead", "one", 1)
        assert await store.lease("lead") == Lease(fence=1, record=b"")
        assert await store.acquire_lease("lead", "other", SHORT_S) == 2
        while (won := await store.acquire_lease("lead", "one", LONG_S)) is None:  # noqa: ASYNC110 (another process changes it)
            await asyncio.sleep(SHORT_S)
        assert won == 3


async def test_a_lease_that_ended_is_renewed_unless_somebody_has_acquired_it(make_store: MakeStore) -> None:
    async with make_store() as store:
        await store.acquire_lease("lead", "one", SHORT_S)
        await store.renew_lease("lead", "one", SHORT_S, Lease(fence=1, record=b"one"))
        while (await store.lease("lead")).record:  # noqa: ASYNC110 (another process changes it)
            await asyncio.sleep(SHORT_S)
        assert await store.renew_lease("lead", "one", SHORT_S, Lease(fence=1, record=b"one"))
        while await store.acquire_lease("lead", "other", LONG_S) is None:  # noqa: ASYNC110 (another process changes it)
            await asyncio.sleep(SHORT_S)
        assert not await store.renew_lease("lead", "one", LONG_S, Lease(fence=1, record=b"one"))
        await store.release_lease("lead", "other", 2)
        assert not await store.renew_lease("lead", "one", LONG_S, Lease(fence=1, record=b"one"))


async def test_a_fence_is_higher_than_what_the_caller_knows(make_store: MakeStore) -> None:
    async with make_store() as store:
        assert await store.acquire_lease("lead", "one", LONG_S, above=7) == 8


async def test_a_redis_without_its_data_learns_the_fence_from_the_leader(redis_server: RedisServer) -> None:
    """A newcomer may have begun to lead meanwhile; its fence is lower, so it loses."""
    prefix = f"{{{secrets.token_hex(4)}}}:"
    async with RedisStore(redis_server.url, prefix) as store, redis.asyncio.Redis.from_url(redis_server.url) as client:
        assert await store.acquire_lease("lead", "one", LONG_S, above=4) == 5
        await client.flushall()
        assert await store.acquire_lease("lead", "newcomer", LONG_S) == 1
        assert await store.renew_lease("lead", "one", LONG_S, Lease(fence=5, record=b"one"))
        assert not await store.renew_lease("lead", "newcomer", LONG_S, Lease(fence=1, record=b"newcomer"))
        assert await store.lease("lead") == Lease(fence=5, record=b"one")


async def test_a_clock_that_is_set_back_keeps_nobody_in_the_lead(tmp_path: Path) -> None:
    """SQLite has no clock of its own, so the machine's counts."""
    now_s = 1000.0
    async with SqliteStore(tmp_path / "jobs.sqlite", lambda: now_s) as store:
        assert await store.acquire_lease("lead", "one", 10.0) == 1
        assert await store.acquire_lease("lead", "other", 10.0) is None
        now_s = 10.0
        assert await store.acquire_lease("lead", "other", 10.0) == 2


async def test_a_clock_of_redis_that_is_set_back_keeps_nobody_in_the_lead(redis_server: RedisServer) -> None:
    """Its clock is the machine's, which a test must not set: so the lease was renewed in the future."""
    prefix = f"{{{secrets.token_hex(4)}}}:"
    async with RedisStore(redis_server.url, prefix) as store, redis.asyncio.Redis.from_url(redis_server.url) as client:
        assert await store.acquire_lease("lead", "one", LONG_S) == 1
        assert await store.acquire_lease("lead", "other", LONG_S) is None
        seconds, _ = await client.time()
        await client.hset(f"{prefix}lease:lead", "renewed_ms", str((seconds + 3600) * 1000))
        assert await store.acquire_lease("lead", "other", LONG_S) == 2
        assert not await store.renew_lease("lead", "one", LONG_S, Lease(fence=1, record=b"one"))
        assert await store.renew_lease("lead", "other", LONG_S, Lease(fence=2, record=b"other"))


async def test_a_cancelled_call_ends_as_cancelled_at_whatever_step(make_store: MakeStore) -> None:
    """A lease would be held for its whole time if a leader that gives up missed that it should end."""
    async with make_store() as store:
        await store.acquire_lease("lead", "one", LONG_S)
        for num_steps in range(40):
            for _ in range(5):
                call = asyncio.create_task(store.renew_lease("lead", "one", LONG_S, Lease(fence=1, record=b"one")))
                for _ in range(num_steps):
                    await asyncio.sleep(0)
                was_cancelled = call.cancel()
                await asyncio.wait([call])
                assert call.cancelled() is was_cancelled, f"it was cancelled after {num_steps} steps of the loop"
