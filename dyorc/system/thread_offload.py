"""Large work off the event loop: on a few threads, so that the loop goes on meanwhile.

Used on the event loop, by code that copies, encodes or decodes tensors.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

INLINE_BYTES = 2**20
"""Work on up to this much is done on the event loop: a thread would cost more than it saves."""

_NUM_THREADS = 2


class ThreadOffload:
    """Runs functions on threads, until it is closed.

    Args:
        name: Of the threads.
    """

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(_NUM_THREADS, name)  # starts them when they are first needed

    def close(self) -> None:
        """Ends the threads, once their work is done."""
        self._threads.shutdown()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Returns what a function returns, called on a thread.

        If the caller is cancelled meanwhile, the cancellation waits until the thread is done, which uses the caller's memory.

        Raises:
            Exception: What the function raises.
        """
        running = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await _wait_uninterrupted(running)
            raise


async def _wait_uninterrupted(running: "asyncio.Future[T]") -> None:
    """Waits for a thread, however often the caller is cancelled."""
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()  # marks it as retrieved
