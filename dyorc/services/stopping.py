"""How the processes of a server are told to stop."""

import asyncio
import signal
from collections.abc import Awaitable


def set_on_signals(stop: asyncio.Event) -> None:
    """Has SIGINT and SIGTERM set an event, from now on. Again, if a library has installed handlers of its own meanwhile."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def before(stop: asyncio.Event, awaited: Awaitable[object]) -> bool:
    """Waits for something, or to be told to stop. Returns False if that came first; what was awaited is then cancelled."""
    waiting = asyncio.ensure_future(awaited)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
        return waiting.done()
    finally:
        for task in (waiting, stopping):
            task.cancel()
        await asyncio.gather(waiting, stopping, return_exceptions=True)
