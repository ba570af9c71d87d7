"""How a server's process stops: the signals that stop it, and how long it drains. Only the standard library."""

import asyncio
import atexit
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from types import FrameType
from typing import Any, Self

from dyorc.system.interrupts import STOPPING, end_by

_AGAIN_S = 0.5
"""How often handlers are installed again: the user's code or a library may replace them at any time."""
_TURNS = 20
"""More turns of the event loop than it needs from a signal to the cancellation of the task that serves."""
_RAY_FAILURES = "RAY_DISABLE_FAILURE_SIGNAL_HANDLER"


class StopSignals:
    """What SIGINT, SIGTERM and SIGHUP mean for a server's process, until it has ended: repetitions may still come when the event
    loop is closed, and must not turn its exit code into a signal.

    Args:
        numbers: The signals. If SIGHUP is ignored when this is made, it stays ignored, for `nohup`.
        same_s: Signals this soon after the first one are repetitions: a terminal and a wrapper may both pass Ctrl-C on.

    Attributes:
        stop: Set by the first signal: the server takes no new requests, and ends when the present ones are finished.
        hurry: Set by another signal: the server waits for nothing.
    """

    def __init__(self, numbers: Sequence[signal.Signals] = STOPPING, same_s: float = 1.0) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._numbers = [number for number in numbers if number is not signal.SIGHUP or not is_ignored]
        self._same_s = same_s
        self._began_s = 0.0
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._late_s: float | None = None
        self._handler = self._on_signal  # always the same object: others compare handlers

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncGenerator[None]:
        """Handles the signals while entered, even if other code replaces their handlers. Enter it before Ray is imported."""
        # Otherwise Ray would treat SIGTERM as a crash: print a native stack trace, and abort the process 3 s later.
        os.environ.setdefault(_RAY_FAILURES, "1")
        self.install()
        installing = asyncio.create_task(self._install_forever())
        try:
            yield
        finally:
            installing.cancel()

    async def run(self, serve: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> None:
        """Runs a server. Once it has started, it has to watch `stop` itself; a signal before that cancels it.

        Args:
            serve: Runs the server; calls its argument once the server has started.
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
        """Installs the handlers in place of the present ones. They stay when the event loop is closed."""
        if not self._numbers:
            return
        if self._loop is None:
            atexit.register(self._ignore)
        self._loop = asyncio.get_running_loop()
        # Handlers that a loop installs go with it. With one of a signal that nobody sends and that ends nothing, signals wake it.
        self._loop.add_signal_handler(signal.SIGURG, lambda: None)
        for number in self._numbers:
            signal.signal(number, self._handler)
            signal.siginterrupt(number, False)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Hands a signal to the loop. Without one, the process ends anyway: only who still waits a moment later means haste."""
        if os.getpid() != self._pid:
            end_by(number)  # a process of the user's that was forked here: the signal is not for the server
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.receive)
        elif self._late_s is None:
            self._late_s = time.monotonic()
        elif time.monotonic() - self._late_s >= self._same_s:
            end_by(number)

    def _ignore(self) -> None:
        """Ignores signals from now on: the interpreter restores the default of handled ones while it ends."""
        if os.getpid() == self._pid:
            for number in self._numbers:
                signal.signal(number, signal.SIG_IGN)

    def receive(self) -> None:
        """Handles a signal."""
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


async def handle_pending_signals() -> None:
    """Lets signals that came while the event loop stood still cancel the task that calls this, if they are to. Call it before
    users' modules are imported, where the loop stands still again."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def before(stop: asyncio.Event, awaited: Awaitable[object]) -> bool:
    """Waits for `awaited`, or for `stop`. Returns False if `stop` came first; `awaited` is then cancelled."""
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


Finish = Callable[[float], Awaitable[object]]
"""Takes no new work from its first step on, and finishes the present work; cuts off what takes longer than the given seconds.
May be called again, with less time."""


class Drain:
    """The time limit that all parts of a stopping server share. Begins when this is left.

    Args:
        timeout_s: The limit.
        hurry: Once it is set, nothing is waited for.
    """

    def __init__(self, timeout_s: float, hurry: asyncio.Event) -> None:
        self._timeout_s = timeout_s
        self._hurry = hurry
        self._began_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._began_s = time.monotonic()

    @property
    def left_s(self) -> float:
        """How much time is left, at least 0; all of it before the drain has begun."""
        passed_s = 0.0 if self._began_s is None else time.monotonic() - self._began_s
        return max(0.0, self._timeout_s - passed_s)

    async def finish(self, *parts: Finish) -> None:
        """Finishes all parts concurrently, in the time that is left."""
        left_s = self.left_s
        if not await before(self._hurry, asyncio.gather(*(part(left_s) for part in parts))):
            await asyncio.gather(*(part(0.0) for part in parts))
