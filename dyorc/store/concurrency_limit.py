"""Bounds the commands that a store's server gets at once; the others wait in order.

They wait until those before them are done, however long that takes: there is no clock here. When one finds that the server
cannot be reached, all waiting ones fail at once, instead of finding out one after the other.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager


class ConcurrencyLimit:
    """Lets a limited number in at a time, first come, first served. For one event loop.

    Args:
        max_at_once: How many may be inside.
    """

    def __init__(self, max_at_once: int) -> None:
        self._num_free = max_at_once
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Waits for a place, and keeps it for the block."""
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    def fail_waiting(self, error: Callable[[], Exception]) -> None:
        """Raises an error in all who wait now."""
        for place in self._waiting:
            if not place.done():
                place.set_exception(error())
        self._waiting.clear()

    async def _enter(self) -> None:
        if self._num_free:
            self._num_free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._leave()  # the place was handed over just before
            raise

    def _leave(self) -> None:
        """Hands the place to the one who has waited longest."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._num_free += 1
