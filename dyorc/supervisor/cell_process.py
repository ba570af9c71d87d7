"""The supervisor's side of one cell: its process and what is known of it. Only the standard library."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from dyorc.supervisor.channel import CellChannel, Message, open_channel

_COMMAND = (sys.executable, "-m", "dyorc.supervisor.cell")
_ABORT_TIMEOUT_S = 1.0
_READ_TIMEOUT_S = 0.1


class CellProcess:
    """One process. Used on the event loop.

    Attributes:
        number: Its number, which the process that follows it inherits.
        started_s: When it was started or got its order (monotonic).
        beaten_s: When its event loop last gave a sign of life; None until it is watched.
        states: What its programs are doing; None until it has said so.
        is_ready: Whether it has been ready.
        failure: Why it could not start; None if it did not say.

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
        self._channel: CellChannel | None = None
        self._end = asyncio.Event()

    async def start(self, pass_fds: tuple[int, ...] = ()) -> None:
        """Starts the process, which then waits for its order. Its group is its own: Ctrl-C is for the supervisor alone.

        Args:
            pass_fds: Further descriptors that it inherits.
        """
        own, others = socket.socketpair()
        with others:
            self.process = _start_process(others.fileno(), pass_fds)
        self._channel = await open_channel(own)
        self._reading = asyncio.get_running_loop().create_task(self._read(self._channel))
        self._watch_end()

    def order(self, **order: Any) -> None:
        """Tells it what to do."""
        self.started_s = time.monotonic()
        self.send("start", **order)

    def _watch_end(self) -> None:
        loop = asyncio.get_running_loop()
        descriptor = os.pidfd_open(self.process.pid)

        def end() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._end.set()

        loop.add_reader(descriptor, end)

    def send(self, kind: str, **content: Any) -> None:
        """Sends a message, if there is somebody to read it."""
        if self._channel is not None:
            self._channel.send(kind, **content)

    async def _read(self, channel: CellChannel) -> None:
        while (message := await channel.receive()) is not None:
            self._on_message(self, message)

    @property
    def has_ended(self) -> bool:
        """Whether the process is over."""
        return self._end.is_set()

    async def wait_until_ended(self) -> None:
        """Waits until it has ended and all that it said is read."""
        await self._end.wait()
        # A process that the cell started may have inherited its end.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reading, _READ_TIMEOUT_S)
        self.process.wait()
        if self._channel is not None:
            self._channel.close()

    def describe_end(self) -> str:
        """Returns how it ended."""
        code = self.process.returncode
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def stop(self) -> None:
        """Asks it to drain and end; for the second time, to end at once."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    async def abort(self) -> None:
        """Ends it at once. The first signal makes it write where each of its threads is; a stopped process does not heed that."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGABRT)
            try:
                await asyncio.wait_for(self._end.wait(), _ABORT_TIMEOUT_S)
            except TimeoutError:
                self.process.kill()


def _start_process(descriptor: int, pass_fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
    command = [*_COMMAND, str(descriptor), str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(descriptor, *pass_fds), process_group=0)
