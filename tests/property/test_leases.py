"""Leases under any order of events: fences grow, and one owner at a time is told that it holds the lease."""

import asyncio
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from dyorc.store.base import Store
from dyorc.store.lease_store import Lease
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests.redis_server import RedisServer

T = TypeVar("T")

_LEASE_S = 3600.0
_OWNERS = st.sampled_from(["ann", "ben", "cem"])


class _Leases(RuleBasedStateMachine):
    """Three who contend; each remembers the fence that it was given."""

    def open(self) -> Store:
        raise NotImplementedError

    def expire(self) -> None:
        """Ends the lease as time does."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.store = self.do(self.open().__aenter__())
        self.fences: dict[str, int] = {}
        self.highest = 0
        self.holder = ""

    def teardown(self) -> None:
        self.do(self.store.__aexit__(None, None, None))
        self.runner.close()

    def do(self, step: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(step)

    @rule(owner=_OWNERS)
    def acquire(self, owner: str) -> None:
        fence = self.do(self.store.acquire_lease("g", owner, _LEASE_S))
        if self.holder == owner:
            assert fence == self.fences[owner] == self.highest
        elif self.holder:
            assert fence is None
        else:
            assert fence is not None
            assert fence == self.highest + 1
            self.highest, self.holder, self.fences[owner] = fence, owner, fence

    @rule(owner=_OWNERS)
    def renew(self, owner: str) -> None:
        fence = self.fences.get(owner, 0)
        if fence:
            is_held = self.do(self.store.renew_lease("g", owner, _LEASE_S, Lease(fence=fence, record=owner.encode())))
            assert is_held == (fence == self.highest), "exactly the one who acquired it last may go on"
            if is_held:
                self.holder = owner

    @rule(owner=_OWNERS)
    def release(self, owner: str) -> None:
        self.do(self.store.release_lease("g", owner, self.fences.get(owner, 0)))
        if self.holder == owner:
            self.holder = ""

    @rule()
    def time_passes(self) -> None:
        self.expire()
        self.holder = ""

    @invariant()
    def all_see_the_highest_fence(self) -> None:
        lease = self.do(self.store.lease("g"))
        assert lease.fence == self.highest
        assert lease.record in (b"", self.holder.encode())


_SHORT = settings(max_examples=25, stateful_step_count=30)


def test_leases_in_sqlite() -> None:
    class InSqlite(_Leases):
        def open(self) -> Store:
            self.folder = tempfile.TemporaryDirectory()
            self.now_s = 0.0
            return SqliteStore(Path(self.folder.name) / "store", lambda: self.now_s)

        def expire(self) -> None:
            self.now_s += _LEASE_S

        def teardown(self) -> None:
            super().teardown()
            self.folder.cleanup()

    run_state_machine_as_test(InSqlite, settings=_SHORT)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as found:
        yield found


def test_leases_in_redis(server: RedisServer) -> None:
    with redis.Redis.from_url(server.url) as client:

        class InRedis(_Leases):
            def open(self) -> Store:
                client.flushall()
                return RedisStore(server.url, "p:")

            def expire(self) -> None:
                client.delete("p:lease:g")

        run_state_machine_as_test(InRedis, settings=_SHORT)
