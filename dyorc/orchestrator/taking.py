"""Makes answers of outputs: of small ones at once, of large ones on a thread, so that the event loop goes on meanwhile.

Used on the event loop. Outputs stay where they are until they are taken: their blocks are pinned until then.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dyorc.arrays import Array
from dyorc.transport.outbox import num_bytes_of

T = TypeVar("T")

INLINE_BYTES = 2**20
"""Outputs of up to this size together are taken on the event loop: a thread would cost more than it saves."""

_NUM_THREADS = 2


class Taking:
    """Takes outputs, until it is closed."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "dyorc-answers")  # starts them when they are first needed

    def close(self) -> None:
        """Ends the threads, when what they do is done."""
        self._threads.shutdown()

    async def take(self, take: Callable[[list[Array]], T], arrays: list[Array]) -> T:
        """What `take` makes of large outputs, on a thread.

        If the caller is cancelled meanwhile, it learns that when the thread is done: until then the thread uses their memory.

        Raises:
            Exception: What `take` raises.
        """
        taking = asyncio.get_running_loop().run_in_executor(self._threads, take, arrays)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            await _ended(taking)
            raise


def is_large(arrays: Sequence[Array]) -> bool:
    """Whether outputs are worth a thread."""
    num_bytes = 0
    for array in arrays:
        num_bytes += array.nbytes
    if num_bytes <= INLINE_BYTES and any(array.dtype == object for array in arrays):  # texts are longer than what points to them
        num_bytes = sum(map(num_bytes_of, arrays))
    return num_bytes > INLINE_BYTES


async def _ended(taking: "asyncio.Future[T]") -> None:
    """Waits for a thread, however often the caller is cancelled."""
    while not taking.done():
        try:
            await asyncio.wait([taking])
        except asyncio.CancelledError:
            continue
    if not taking.cancelled():
        taking.exception()  # nobody else asks for it
