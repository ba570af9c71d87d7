"""The supervisor's side of a cell: its process, when to restart it, and when it counts as hanging. Only the standard library."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from dyorc.supervisor.console import report_error
from dyorc.system.json_lines import JsonLineStream, Message

_COMMAND = (sys.executable, "-P", "-m", "dyorc.supervisor.cell_main")
_ABORT_TIMEOUT_S = 1.0
_READ_TIMEOUT_S = 0.1
_LOOK_S = 0.1
_HEALTHY_S = 60.0
"""A cell that has run this long counts as healthy."""


class CellProcess:
    """One process. Used on the event loop.

    Attributes:
        number: Its number, which the next process in its place inherits.
        started_s: When it was started or got its order (monotonic).
        beaten_s: When its event loop last gave a sign of life; None until it is watched.
        states: The states of its programs; None until it has reported them.
        is_ready: Whether it has been ready.
        failure: Why it could not start; None if it did not report that.

    Args:
        on_message: Called with this object and each message.
    """

    process: subprocess.Popen[bytes]

    def __init__(self, number: int, on_message: Callable[["CellProcess", Message], None]) -> None:
        self.number = number
        self.started_s = time.monotonic()
        self.beaten_s: float | None = None
        self.states: dict[str, Any] | None = None
        self.is_ready = False
        self.failure: Message | None = None
        self._on_message = on_message
        self._channel: JsonLineStream | None = None
        self._end = asyncio.Event()

    async def start(self, pass_fds: tuple[int, ...] = ()) -> None:
        """Starts the process, which then waits for its order. It has its own process group: Ctrl-C reaches only the supervisor.

        Args:
            pass_fds: Further descriptors that it inherits.
        """
        own_end, cells_end = socket.socketpair()
        with cells_end:
            self.process = _start_process(cells_end.fileno(), pass_fds)
        self._channel = await JsonLineStream.open(own_end)
        self._reading = asyncio.get_running_loop().create_task(self._read(self._channel))
        self._watch_end()

    def order(self, **order: Any) -> None:
        """Sends it what to serve."""
        self.started_s = time.monotonic()
        self.send("start", **order)

    def _watch_end(self) -> None:
        loop = asyncio.get_running_loop()
        if sys.platform != "linux":
            threading.Thread(target=self._wait_for_end, args=(loop,), name="dyorc-cell-end", daemon=True).start()
            return
        descriptor = os.pidfd_open(self.process.pid)

        def end() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._end.set()

        loop.add_reader(descriptor, end)

    def _wait_for_end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits on a thread, where no descriptor shows that a process has ended."""
        self.process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._end.set)

    def send(self, kind: str, **content: Any) -> None:
        """Sends a message, if the process has been started."""
        if self._channel is not None:
            self._channel.send(kind, **content)

    async def _read(self, channel: JsonLineStream) -> None:
        while (message := await channel.receive()) is not None:
            self._on_message(self, message)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._end.is_set()

    async def wait_until_ended(self) -> None:
        """Waits until it has ended and all its messages are read."""
        await self._end.wait()
        # A child of the cell may have inherited its end and keep it open.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READ_TIMEOUT_S):
                await self._reading
        self.process.wait()
        if self._channel is not None:
            self._channel.close()

    def describe_end(self) -> str:
        """Returns how it ended."""
        code = self.process.returncode
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def stop(self) -> None:
        """Asks it to drain and end; the second call asks it to end at once."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    async def abort(self) -> None:
        """Ends it at once. The first signal makes it print where each of its threads is; a stopped process ignores that."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGABRT)
            try:
                async with asyncio.timeout(_ABORT_TIMEOUT_S):
                    await self._end.wait()
            except TimeoutError:
                self.process.kill()


def _start_process(descriptor: int, pass_fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
    command = [*_COMMAND, str(descriptor), str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(descriptor, *pass_fds), process_group=0)


class RestartBackoff:
    """The delay before a restart: none the first time; if the cell keeps dying, twice as long each time, up to a bound.

    Args:
        first_delay_s: The delay before the second restart; each further one doubles it.
        max_delay_s: The bound.
    """

    def __init__(self, first_delay_s: float, max_delay_s: float) -> None:
        self._first_delay_s = first_delay_s
        self._max_delay_s = max_delay_s
        self._num_deaths = 0

    def delay_s(self, lived_s: float) -> float:
        """Returns how long to wait before restarting a cell that has died `lived_s` seconds after its start."""
        self._num_deaths = 1 if lived_s >= _HEALTHY_S else self._num_deaths + 1
        if self._num_deaths == 1:
            return 0.0
        return min(self._max_delay_s, self._first_delay_s * 2.0 ** min(self._num_deaths - 2, 60))


async def abort_hanging_cells(cells: Callable[[], Iterable[CellProcess]], limit_s: float) -> None:
    """Ends cells whose event loops stand still. Runs until it is cancelled.

    Args:
        cells: Returns the current cells.
        limit_s: How long a cell may go without a sign of life.
    """
    last_s = time.monotonic()
    while True:
        await asyncio.sleep(_LOOK_S)
        now_s = time.monotonic()
        paused_s, last_s = now_s - last_s - _LOOK_S, now_s
        for cell in list(cells()):
            if cell.beaten_s is None or cell.has_ended:
                continue
            if paused_s > _LOOK_S:
                cell.beaten_s += paused_s  # this process itself was paused, so perhaps the whole machine was
            if now_s - cell.beaten_s > limit_s:
                limit = f"for {limit_s:g} s (the setting CELLS__HANG_LIMIT_S)"
                report_error(f"cell {cell.number} (process {cell.process.pid}) has not responded {limit} and is killed")
                cell.beaten_s = None
                await cell.abort()
