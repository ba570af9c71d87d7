"""Finds the leader of a group: for gateways, which follow it, and for replicas, which ask when they have lost theirs.

The last known leader counts while the store cannot be used, and after its lease has ended: it may still be there, and there is no
better one.
"""

import asyncio
import random
from typing import Self

import structlog

from dyorc.errors import StoreError
from dyorc.leader_election.leader import Leader, leader_of, lease_name
from dyorc.store.lease_store import LeaseStore
from dyorc.store.opening import leases_of

_log = structlog.get_logger("dyorc.leadership")

_SOON_S = 0.05
"""How often to look while a caller waits for the next leader."""


class LeaderDiscovery:
    """Follows who leads a group, while entered.

    Args:
        leases: The store, open.
        poll_s: How often to look otherwise.

    Attributes:
        leader: The leader with the highest fence so far; None before there was one.
    """

    def __init__(self, leases: LeaseStore, group: str, poll_s: float = 1.0) -> None:
        self.group = group
        self.leader: Leader | None = None
        self._leases = leases
        self._poll_s = poll_s
        self._changed = asyncio.Condition()
        self._is_due = asyncio.Event()
        self._num_waiting = 0
        self._is_store_away = False

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._following.cancel()
        await asyncio.wait([self._following])

    def look(self) -> None:
        """Looks at once: the known leader does not answer."""
        self._is_due.set()

    async def newer(self, than: int = 0) -> Leader:
        """Waits for a leader with a fence higher than `than`, and looks often meanwhile."""
        self._num_waiting += 1
        self.look()
        try:
            async with self._changed:
                while self.leader is None or self.leader.fence <= than:
                    await self._changed.wait()
                return self.leader
        finally:
            self._num_waiting -= 1

    async def _follow(self) -> None:
        while True:
            self._is_due.clear()
            await self._look()
            pause_s = (_SOON_S if self._num_waiting else self._poll_s) * random.uniform(0.5, 1.5)
            try:
                async with asyncio.timeout(pause_s):
                    await self._is_due.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(self._poll_s):
                leader = leader_of(await self._leases.lease(lease_name(self.group)))
        except (StoreError, TimeoutError) as error:
            if not self._is_store_away:
                _log.warning("store_is_away", group=self.group, error=getattr(error, "detail", "it does not answer in time"))
            self._is_store_away = True
            return
        self._is_store_away = False
        if leader is not None and (self.leader is None or leader.fence >= self.leader.fence) and leader != self.leader:
            async with self._changed:
                self.leader = leader
                self._changed.notify_all()


def find_leader(store: str, group: str, timeout_s: float = 2.0) -> Leader | None:
    """Looks once for the leader of a group, blocking. Returns None without a leader, or if the store cannot be used in time.

    Args:
        store: The setting `STORE`.
    """

    async def look() -> Leader | None:
        async with asyncio.timeout(timeout_s), leases_of(store) as opened:
            return leader_of(await opened.lease(lease_name(group)))

    try:
        return asyncio.run(look())
    except (StoreError, TimeoutError):
        return None
