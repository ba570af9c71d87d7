"""Signals that stop the processes of a server."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

_AGAIN_S = 0.5
"""How often handlers are installed again: a module of the user's, or a library, may have replaced them at any time."""
_RAY_FAILURES = "RAY_DISABLE_FAILURE_SIGNAL_HANDLER"


class StopSignals:
    """What SIGINT, SIGTERM and SIGHUP mean for a server's process.

    Args:
        numbers: The signals. If SIGHUP is ignored when this is made, it stays so: that is what `nohup` is for.
        same_s: Signals that follow the first one so soon are the same wish: a terminal and a wrapper may both pass Ctrl-C on.

    Attributes:
        stop: Set by the first of them: the server takes nothing new, and ends when what it has is finished.
        hurry: Set by another one: the server waits for nothing.
    """

    def __init__(
        self, numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), same_s: float = 1.0
    ) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._numbers = [number for number in numbers if number is not signal.SIGHUP or not is_ignored]
        self._same_s = same_s
        self._began_s = 0.0

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncGenerator[None]:
        """Heeds the signals while entered, whatever other code does to their handlers. Enter it before Ray is imported."""
        # Otherwise Ray would take SIGTERM for a crash: write a native stack trace, and abort the process 3 s later.
        os.environ.setdefault(_RAY_FAILURES, "1")
        self.install()
        installing = asyncio.create_task(self._install_forever())
        try:
            yield
        finally:
            installing.cancel()

    async def run(self, serve: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> None:
        """Runs a server, which looks at `stop` once it has started; a server that gets a signal before that is cancelled.

        Args:
            serve: Gets what it has to call when it has started.
        """
        has_started = asyncio.Event()
        async with self.watch():
            serving = asyncio.create_task(serve(has_started.set))
            stopping = asyncio.create_task(self.stop.wait())
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not has_started.is_set():
                serving.cancel()
            await asyncio.wait((serving,))
            if not serving.cancelled():
                serving.result()

    def install(self) -> None:
        """Installs the handlers, replacing the present ones."""
        loop = asyncio.get_running_loop()
        for number in self._numbers:
            loop.add_signal_handler(number, self.receive)

    def receive(self) -> None:
        """Takes note of a signal."""
        now_s = asyncio.get_running_loop().time()
        if not self.stop.is_set():
            self._began_s = now_s
            self.stop.set()
        elif now_s - self._began_s >= self._same_s:
            self.hurry.set()

    async def _install_forever(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN_S)
            self.install()


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
