"""An orchestrator's lead of its group: waits for it, keeps it, notices when it is lost, gives it up.

The lead is a lease in the store, renewed at a third of its length. It can end in three ways:

* Another process has acquired it: the store reports that. The lead is lost for good (`wait_until_lost`).
* The store cannot be used: then no other process can acquire it either, and this one continues. If another one acquired it just
  before, the store's first answer shows it.
* This process did not renew it in time, although the store could be used: it was stopped, or its event loop stood still. Then
  it does not know whether it leads (`is_sure`) until the store has answered.

No clock decides who leads: a process that sees two leaders follows the one with the higher fence. A leader that notices its loss
only saves work.
"""

import asyncio
import contextlib
import os
import random
import secrets
import time
from collections.abc import Callable
from typing import Self

import structlog

from dyorc.errors import StoreError
from dyorc.leader_election.leader import Leader, LeaderTerm, lease_name, lease_of
from dyorc.store.lease_store import Lease, LeaseStore

_log = structlog.get_logger("dyorc.leadership")

_RENEWALS = 3
"""Renewals in the time of a lease."""
_TRIES = 10
"""How often a standby tries in the time of a lease: this limits the gap when an orchestrator gives up its lead."""
_TRIES_WHILE_AWAY = 20
"""How often the leader tries to renew in that time while the store is away: it should be the first when the store is back."""
_MARGIN = 0.1
"""The fraction of a lease by which this process's clock may be slower than the store's."""


class Leadership:
    """The lead of a group. Win it while entered; leaving gives it up.

    Args:
        leases: The store, open.
        lease_s: How long the lead lasts without being renewed. The same for the whole group.
        clock_s: Monotonic.
        is_alive: Returns whether the process works. While it does not, the lead is not renewed.

    Attributes:
        fence: The fence of this leadership; 0 before it is won.
        owner: This process's name in the store.
        is_store_away: Whether the last attempt to renew failed because of the store.
    """

    def __init__(
        self,
        leases: LeaseStore,
        group: str,
        lease_s: float,
        clock_s: Callable[[], float] = time.monotonic,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self.group = group
        self.fence = 0
        self.is_store_away = False
        self._leases = leases
        self._name = lease_name(group)
        self._lease_s = lease_s
        self._clock_s = clock_s
        self._is_alive = is_alive
        self.owner = secrets.token_hex(8)
        self._record = b""
        self._sure_until_s = 0.0
        self._lost: asyncio.Future[str] = asyncio.Future()
        self._is_due = asyncio.Event()
        self._outranked_by = 0
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._renewing is None:
            return
        self._renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._renewing
        with contextlib.suppress(StoreError, TimeoutError):  # then the lease expires
            async with asyncio.timeout(self._lease_s):
                await self._leases.release_lease(self._name, self.owner, self.fence)

    @property
    def is_sure(self) -> bool:
        """Whether this process may act as the leader now. If not, it must wait for the store."""
        return not self._lost.done() and self._clock_s() < self._sure_until_s

    @property
    def reason(self) -> str:
        """Why the lead is lost; empty if it is not."""
        return self._lost.result() if self._lost.done() else ""

    @property
    def lead(self) -> LeaderTerm:
        """This leadership, once it is won, for the components that depend on it."""
        return LeaderTerm(
            group=self.group, fence=self.fence, is_sure=lambda: self.is_sure, report_fence=self.report_fence,
            is_lost=lambda: bool(self.reason),
        )  # fmt: skip

    def report_fence(self, fence: int) -> None:
        """Reports a higher fence that a gateway or a replica knows. If the store has no such leader, it has lost its data.
        Processes that know this fence would follow no lower one, so this leader gives up its lead, and the next fence is higher.
        """
        if fence > max(self.fence, self._outranked_by):
            self._outranked_by = fence
            self._is_due.set()

    async def win(self) -> int:
        """Waits until this process leads, without a time limit. Returns the fence.

        While the store is away, the leader's lease may expire. After the store is back, others wait for the length of a lease, so
        that the leader can renew it first.
        """
        known, patient_until_s = 0, 0.0
        while not self.fence:
            began_s = self._clock_s()
            try:
                async with asyncio.timeout(self._lease_s):
                    known = max(known, (await self._leases.lease(self._name)).fence)
                    if self.is_store_away:
                        patient_until_s = self._clock_s() + self._lease_s
                    won = None
                    if self._clock_s() >= patient_until_s:
                        won = await self._leases.acquire_lease(self._name, self.owner, self._lease_s, known)
            except (StoreError, TimeoutError) as error:
                self._store_is_away(error)
                won = None
            else:
                self.is_store_away = False
            if won:
                self.fence = won
                self._sure_until(began_s)
            else:
                await asyncio.sleep(self._lease_s / _TRIES * random.uniform(0.5, 1.5))
        _log.info("leading", group=self.group, fence=self.fence)
        self._renewing = asyncio.create_task(self._keep())
        return self.fence

    def announce(self, address: str, replicas_address: str = "", node: str = "") -> Leader:
        """Writes to the store where this leader is found, now and with each renewal. Before that, no process can find it."""
        leader = self.describe(address, replicas_address, node)
        self.publish(leader)
        return leader

    def describe(self, address: str, replicas_address: str = "", node: str = "") -> Leader:
        """Returns the record of this leader."""
        addresses = {"address": address, "replicas_address": replicas_address}
        return Leader(group=self.group, fence=self.fence, node=node, pid=os.getpid(), **addresses)

    def publish(self, leader: Leader) -> None:
        """Writes a record to the store, now and with each renewal."""
        self._record = lease_of(leader).record
        self._is_due.set()

    async def wait_until_lost(self) -> str:
        """Waits until the lead is lost. Returns the reason, a sentence."""
        return await asyncio.shield(self._lost)

    async def _keep(self) -> None:
        while not self._lost.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease_s / (_TRIES_WHILE_AWAY if self.is_store_away else _RENEWALS)):
                    await self._is_due.wait()
            self._is_due.clear()
            if self._is_alive():
                await self._renew()

    async def _renew(self) -> None:
        began_s, limit_s = self._clock_s(), self._lease_s / _RENEWALS
        held = Lease(fence=self.fence, record=self._record)
        try:
            async with asyncio.timeout(limit_s):
                is_ours = await self._leases.renew_lease(self._name, self.owner, self._lease_s, held)
                if is_ours and self._outranked_by:
                    await self._raise_fence()
        except (StoreError, TimeoutError) as error:
            if self._clock_s() - began_s < 2 * limit_s:
                self._store_is_away(error)
                self._sure_until(began_s)  # as far as this process knows, no other one can have acquired it
            else:
                self._is_due.set()  # this process was stopped meanwhile: the store may be fine
            return
        if not is_ours:
            self._lost.set_result(
                f"another orchestrator leads group {self.group!r} now: this one did not renew its lead, fence {self.fence}, "
                f"within {self._lease_s} s"
            )
            return
        if self._outranked_by:
            self._lost.set_result(
                f"a gateway or replica knows a leader of group {self.group!r} with fence {self._outranked_by}, but the store "
                "does not: it has lost its data; the next fence is higher"
            )
            return
        self._sure_until(began_s)
        if self.is_store_away:
            self.is_store_away = False
            _log.info("store_is_back", group=self.group, fence=self.fence)

    async def _raise_fence(self) -> None:
        """Makes the store give the next leader a fence above all that are known."""
        await self._leases.release_lease(self._name, self.owner, self.fence)
        raised = await self._leases.acquire_lease(self._name, self.owner, self._lease_s, self._outranked_by)
        if raised:
            await self._leases.release_lease(self._name, self.owner, raised)

    def _sure_until(self, began_s: float) -> None:
        """Notes that the lease was prolonged, counted from when the renewal began."""
        self._sure_until_s = began_s + self._lease_s * (1 - _MARGIN)

    def _store_is_away(self, error: Exception) -> None:
        if not self.is_store_away:
            self.is_store_away = True
            consequence = "this orchestrator continues to lead" if self.fence else "no orchestrator can begin to lead"
            reason = getattr(error, "detail", "it does not answer in time")
            _log.warning("store_is_away", group=self.group, consequence=consequence, error=reason)
