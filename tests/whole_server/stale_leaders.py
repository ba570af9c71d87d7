"""Notices whatever comes from a leader that its receiver knows to be outranked, and is used all the same."""

from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from dyorc.cluster.gateway_server import GatewayServer
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.leader_election.leader_discovery import LeaderDiscovery
from dyorc.store import redis, sqlite, sqlite_jobs
from dyorc.store.base import NoteFence

_USES = ("_take_answer", "_take_part", "_fail")


class StaleLeaders:
    """Watches gateways, orchestrators, notes and the ends of jobs, while a run goes on.

    Attributes:
        wrong: What was used that must not have been.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._highest: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        """The highest fence that a gateway was shown, by its connection to the group."""
        self._sender = 0
        self._claimed: Counter[str] = Counter()
        """The highest fence that a store has confirmed for notes, by scope."""

    def begin(self) -> None:
        """Watches from now on, for as long as this process of the operating system lives."""
        backend: Any = RemoteBackend
        backend._receive = self._receiving(backend._receive)
        backend._join = self._joining(backend._join)
        for name in _USES:
            setattr(backend, name, self._using(name, getattr(backend, name)))
        discovery: Any = LeaderDiscovery
        discovery._look = self._looking(discovery._look)
        server: Any = GatewayServer
        server._greet = self._greeting(server._greet)
        jobs: Any = sqlite_jobs
        jobs.finish, jobs.release = self._ending(jobs.finish), self._ending(jobs.release)
        for store in (sqlite.SqliteStore, redis.RedisStore):
            notes: Any = store
            notes.note = self._noting(notes.note)
            notes.claim_notes = self._claiming(notes.claim_notes)

    def _see(self, discovery: Any, fence: int) -> None:
        self._highest[discovery] = max(fence, self._highest.get(discovery, 0))

    def _looking(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        async def look(discovery: Any) -> None:
            await real(discovery)
            if discovery.leader is not None:
                self._see(discovery, discovery.leader.fence)

        return look

    def _joining(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def join(backend: Any, connection: Any, fence: int, *rest: Any) -> None:
            if fence < self._highest.get(backend._leaders, 0):
                self.wrong.append(f"a gateway follows fence {fence}, and has seen {self._highest[backend._leaders]}")
            self._see(backend._leaders, fence)
            real(backend, connection, fence, *rest)

        return join

    def _receiving(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def receive(backend: Any, leader: Any, *rest: Any) -> None:
            self._sender = leader.fence
            try:
                real(backend, leader, *rest)
            finally:
                self._sender = 0

        return receive

    def _using(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def use(backend: Any, *values: Any) -> Any:
            highest = self._highest.get(backend._leaders, 0)
            if 0 < self._sender < highest:
                self.wrong.append(f"a gateway that has seen fence {highest} took what fence {self._sender} sent: {name}")
            return real(backend, *values)

        return use

    def _greeting(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def greet(server: Any, peer: bytes, hello: Any) -> None:
            real(server, peer, hello)
            if hello.fence > server._lead.fence:
                self.wrong.append(f"an orchestrator with fence {server._lead.fence} let a gateway in that knows {hello.fence}")

        return greet

    def _noting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        async def note(store: Any, name: str, value: bytes, fence: NoteFence | None = None) -> bool:
            claimed = 0 if fence is None else self._claimed[fence.scope]
            is_written = await real(store, name, value, fence)
            if fence is not None and is_written and fence.number < claimed:
                self.wrong.append(f"a leader with fence {fence.number} wrote {name} after fence {claimed} had claimed the notes")
            return is_written

        return note

    def _claiming(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        async def claim(store: Any, fence: NoteFence) -> int:
            highest = await real(store, fence)
            self._claimed[fence.scope] = max(self._claimed[fence.scope], highest)
            return highest

        return claim

    def _ending(self, real: Callable[..., bool]) -> Callable[..., bool]:
        @wraps(real)
        def end(connection: Any, held: Any, *rest: Any) -> bool:
            row = connection.execute("SELECT token, state FROM jobs WHERE id = ?", (held.job.id,)).fetchone()
            has_ended = real(connection, held, *rest)
            if has_ended and (row is None or tuple(row) != (held.token, "running")):
                self.wrong.append(f"job {held.job.id} was ended or released by a lost claim: {held.token}, the store has {row}")
            return has_ended

        return end
