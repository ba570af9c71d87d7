"""One process's view of its lead: what it knows when time has passed, when the store is away, and when it is back."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis.asyncio
from structlog.testing import capture_logs

from dyorc.leader_election.leader import Leader, lease_of
from dyorc.leader_election.leader_discovery import LeaderDiscovery, find_leader
from dyorc.leader_election.leadership import Leadership
from dyorc.leader_election.leadership_thread import LeadershipThread
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests.deadlines import wait_until_async
from tests.integration.jobs.stored_jobs import LONG_S
from tests.redis_server import RedisServer

pytestmark = pytest.mark.together

_LEASE_S = 1.0


class _Clock:
    """Runs like the machine's, and can be put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


async def test_a_process_that_did_not_get_to_renew_is_not_sure_until_the_store_has_answered(tmp_path: Path) -> None:
    clock = _Clock()
    async with SqliteStore(tmp_path / "s") as store, Leadership(store, "g", _LEASE_S, clock) as leadership:
        assert not leadership.is_sure
        await leadership.win()
        await wait_until_async(lambda: leadership.is_sure, "it leads")
        clock.ahead_s += 3600
        assert not leadership.is_sure
        await wait_until_async(lambda: leadership.is_sure, "the store has said that nobody else leads")


async def test_a_leader_goes_on_while_the_store_is_away(redis_server: RedisServer, tmp_path: Path) -> None:
    clock = _Clock()
    async with RedisStore(redis_server.url) as store, Leadership(store, tmp_path.name, _LEASE_S, clock) as leadership:
        fence = await leadership.win()
        with capture_logs() as logs:
            redis_server.kill()
            await wait_until_async(lambda: leadership.is_store_away, "it is noticed that the store is away")
            clock.ahead_s += 3600
            assert not leadership.is_sure, "it may have been stopped, rather than the store"
            await wait_until_async(lambda: leadership.is_sure, "it goes on leading")
            redis_server.start()
            await wait_until_async(lambda: not leadership.is_store_away, "the store is back")
        await wait_until_async(lambda: leadership.is_sure, "it is sure that it leads")
        assert (await store.lease(f"leader/{tmp_path.name}")).fence == fence
        assert [one["event"] for one in logs] == ["store_is_away", "store_is_back"], "said once, however long it takes"


async def test_a_lease_that_ends_while_the_store_is_away_is_the_leaders_when_it_is_back(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """A standby asks more often than a leader renews, and must not be quicker."""
    async with (
        RedisStore(redis_server.url) as store,
        RedisStore(redis_server.url) as others,
        Leadership(store, tmp_path.name, _LEASE_S) as leader,
        Leadership(others, tmp_path.name, _LEASE_S) as standby,
    ):
        fence = await leader.win()
        winning = asyncio.create_task(standby.win())
        for _ in range(3):
            redis_server.kill()
            await wait_until_async(lambda: leader.is_store_away and standby.is_store_away, "both notice that the store is away")
            killed_s = time.monotonic()
            await wait_until_async(lambda since_s=killed_s: time.monotonic() > since_s + 1.5 * _LEASE_S, "the lease has ended")
            redis_server.start()
            await wait_until_async(lambda: not (leader.is_store_away or standby.is_store_away), "the store is back")
        assert not leader.reason
        assert not winning.done()
        assert (await store.lease(f"leader/{tmp_path.name}")).fence == fence
        winning.cancel()


async def test_a_lead_lost_while_the_store_was_away_is_noticed_when_it_is_back(redis_server: RedisServer, tmp_path: Path) -> None:
    """To this leader the store is away; to somebody else it is not."""
    name = f"leader/{tmp_path.name}"
    async with RedisStore(redis_server.url) as store, RedisStore(redis_server.url) as others:
        async with Leadership(store, tmp_path.name, _LEASE_S) as leadership:
            fence = await leadership.win()
            redis_server.kill()
            await wait_until_async(lambda: leadership.is_store_away, "it is noticed that the store is away")
            redis_server.start()
            async with redis.asyncio.Redis.from_url(redis_server.url) as client:
                while (won := await others.acquire_lease(name, "other", LONG_S)) is None:
                    await client.delete(f"dyorc:{{jobs}}:lease:{name}")
            assert won > fence
            reason = await leadership.wait_until_lost()
            assert f"another orchestrator leads group {tmp_path.name!r} now" in reason
            assert not leadership.is_sure
        assert await others.acquire_lease(name, "other", LONG_S) == won, "it has not given up what is not its own"


async def test_followers_see_each_new_leader(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s") as store, LeaderDiscovery(store, "g", poll_s=0.05) as discovery:
        waiting = asyncio.create_task(discovery.newer())
        async with Leadership(store, "g", LONG_S) as first:
            await first.win()
            assert (await store.lease("leader/g")).fence == 1
            assert discovery.leader is None, "it is not ready yet"
            announced = first.announce("tcp://here:1", "tcp://here:2", "node")
            assert await waiting == announced == discovery.leader
        async with Leadership(store, "g", LONG_S) as second:
            assert discovery.leader == announced, "nobody better is known"
            await second.win()
            announced = second.announce("tcp://there:1")
            assert (await discovery.newer(than=1)) == announced
            assert announced.fence == 2


async def test_followers_look_at_once_when_asked(tmp_path: Path) -> None:
    async with (
        SqliteStore(tmp_path / "s") as store,
        LeaderDiscovery(store, "g", poll_s=LONG_S) as discovery,
        Leadership(store, "g", LONG_S) as leadership,
    ):
        fence = await leadership.win()
        leader = Leader(group="g", fence=fence, address="unix:///here")
        await store.renew_lease("leader/g", leadership.owner, LONG_S, lease_of(leader))
        discovery.look()
        await wait_until_async(lambda: discovery.leader == leader, "it has looked")


async def test_a_store_that_has_lost_its_data_gives_the_next_leader_a_fence_above_all_that_are_known(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s") as store:
        async with Leadership(store, "g", _LEASE_S) as leadership:
            assert await leadership.win() == 1
            leadership.report_fence(57)
            assert "fence 57, but the store does not" in await leadership.wait_until_lost()
        async with Leadership(store, "g", _LEASE_S) as leadership:
            assert await leadership.win() > 57


async def test_a_slow_clock_does_not_matter_since_followers_believe_the_higher_fence(tmp_path: Path) -> None:
    """It runs at a thousandth of the speed, so its owner feels sure for an hour."""
    async with SqliteStore(tmp_path / "s") as store, LeaderDiscovery(store, "g", poll_s=0.05) as discovery:
        slow = Leadership(store, "g", _LEASE_S, lambda: time.monotonic() / 1000, is_alive=lambda: False)
        async with slow, Leadership(store, "g", _LEASE_S) as other:
            fence = await slow.win()
            await other.win()
            leader = other.announce("unix:///other")
            assert slow.is_sure
            assert await discovery.newer(than=fence) == leader


async def test_a_workflow_that_computes_for_longer_than_the_lease_does_not_lose_the_lead(tmp_path: Path) -> None:
    """Nobody else may win meanwhile: the standby has its own thread, too."""
    setting, lease_s = f"sqlite://{tmp_path}/s", 3 * _LEASE_S  # a busy machine holds up a process for less than this
    async with LeadershipThread(setting, "g", lease_s, hang_limit_s=LONG_S) as leadership:
        fence = await leadership.win()
        leader = leadership.announce("unix:///here")
        async with LeadershipThread(setting, "g", lease_s, hang_limit_s=LONG_S) as standby:
            waiting = asyncio.create_task(standby.win())
            await asyncio.sleep(0)
            time.sleep(1.5 * lease_s)  # noqa: ASYNC251 (the workflow)
            await asyncio.sleep(0)
            assert leadership.is_sure
            assert not waiting.done()
            assert _find_leader_beside(setting) == leader
            waiting.cancel()
    assert fence == 1


async def test_a_loop_that_hangs_loses_the_lead(tmp_path: Path) -> None:
    setting = f"sqlite://{tmp_path}/s"
    async with LeadershipThread(setting, "g", _LEASE_S, hang_limit_s=0.5) as leadership, SqliteStore(tmp_path / "s") as store:
        fence = await leadership.win()
        leadership.announce("unix:///here")
        time.sleep(3 * _LEASE_S)  # noqa: ASYNC251 (it hangs)
        assert await store.acquire_lease("leader/g", "other", LONG_S) == fence + 1
        assert "another orchestrator leads" in await leadership.wait_until_lost()


def _find_leader_beside(setting: str) -> Leader | None:
    """Looks on another thread: this one has a loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(find_leader, setting, "g").result()
