"""A lead that is kept on a separate thread, so that a workflow that computes for seconds on the event loop does not lose it.

Without this, such a request would be fatal: the leader is replaced while it computes, the request is submitted again to the next
leader, and so on. A loop that stands still for much longer than any workflow may hangs: then the lead is given up.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from dyorc.leader_election.leader import Leader, LeaderTerm
from dyorc.leader_election.leadership import Leadership
from dyorc.store.opening import leases_of

T = TypeVar("T")

_BEAT_S = 0.25


class LeadershipThread:
    """Like `Leadership`, for the event loop that enters it.

    Args:
        store: The setting `STORE`.
        hang_limit_s: After the loop has stood still for this long, the lead is no longer renewed.
    """

    def __init__(self, store: str, group: str, lease_s: float, hang_limit_s: float) -> None:
        self.group = group
        self._store = store
        self._lease_s = lease_s
        self._hang_limit_s = hang_limit_s
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="dyorc-lead", daemon=True)
        self._started = threading.Event()
        self._inner: Leadership
        self._loop: asyncio.AbstractEventLoop
        self._over: asyncio.Event
        self._failure: BaseException | None = None
        self._beat_s = 0.0

    async def __aenter__(self) -> Self:
        self._beat_s = time.monotonic()
        self._beating = asyncio.create_task(self._beat())
        self._thread.start()
        await asyncio.to_thread(self._started.wait)
        if self._failure is not None:
            await self.__aexit__(None, None, None)
            raise self._failure
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._failure is None:
            self._loop.call_soon_threadsafe(self._over.set)
        await asyncio.to_thread(self._thread.join)
        self._beating.cancel()

    @property
    def fence(self) -> int:
        """See `Leadership.fence`."""
        return self._inner.fence

    @property
    def is_store_away(self) -> bool:
        """See `Leadership.is_store_away`."""
        return self._inner.is_store_away

    @property
    def is_sure(self) -> bool:
        """See `Leadership.is_sure`."""
        return self._inner.is_sure

    @property
    def lead(self) -> LeaderTerm:
        """See `Leadership.lead`."""
        return LeaderTerm(
            group=self.group, fence=self.fence, is_sure=lambda: self.is_sure, report_fence=self.report_fence,
            is_lost=lambda: bool(self.reason),
        )  # fmt: skip

    @property
    def reason(self) -> str:
        """See `Leadership.reason`."""
        return self._inner.reason

    def report_fence(self, fence: int) -> None:
        """See `Leadership.report_fence`."""
        self._loop.call_soon_threadsafe(self._inner.report_fence, fence)

    async def win(self) -> int:
        """See `Leadership.win`."""
        return await self._on_thread(self._inner.win())

    def announce(self, address: str, replicas_address: str = "", node: str = "") -> Leader:
        """See `Leadership.announce`."""
        leader = self._inner.describe(address, replicas_address, node)
        self._loop.call_soon_threadsafe(self._inner.publish, leader)
        return leader

    async def wait_until_lost(self) -> str:
        """See `Leadership.wait_until_lost`. May be called again after this is left."""
        return self.reason or await self._on_thread(self._inner.wait_until_lost())

    async def _on_thread(self, step: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(step, self._loop))

    async def _beat(self) -> None:
        while True:
            self._beat_s = time.monotonic()
            await asyncio.sleep(_BEAT_S)

    def _is_alive(self) -> bool:
        return time.monotonic() - self._beat_s < self._hang_limit_s

    async def _main(self) -> None:
        try:
            self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
            async with (
                leases_of(self._store) as leases,
                Leadership(leases, self.group, self._lease_s, is_alive=self._is_alive) as self._inner,
            ):
                self._started.set()
                await self._over.wait()
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()
