"""Starts a server in a separate process, and later removes every trace of it. Tests, benchmarks and demos use it.

A server is any command that prints ``Listening on URL``, perhaps ``gRPC on ADDRESS``, and ``Ready``, and that ends on SIGINT.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dyorc.testing.leftovers import SHARED_MEMORY, ServerLeftovers, own_name

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120.0
_ORPHANS_TIMEOUT_S = 10.0
_POLL_S = 0.02
_TERMINAL_SETTINGS = ("FORCE_COLOR", "TTY_COMPATIBLE")


class ServerProcess:
    """Runs a server while entered. Afterwards ends all its processes, even if they have another parent, and removes its files.

    Attributes:
        process: The server's main process, which leads its own session.
        lines: What the server has printed so far.

    Args:
        command: The command that starts it.
        environment: Variables to add to this process's environment.
        folder: Its working directory; by default the current one.
        show: Called with each line that the server prints, on another thread.
    """

    process: subprocess.Popen[str]

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._command = command
        self._environment = environment or {}
        self._folder = folder
        self._show = show
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        # In /tmp, even if TMPDIR says otherwise: a Unix socket's path has at most 107 characters, and Ray's are long.
        self._home = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
        shared = SHARED_MEMORY if SHARED_MEMORY.is_dir() else self._home
        arenas = shared / f"dyorc-{own_name()}"
        arenas.mkdir(mode=0o700)
        self._traces = ServerLeftovers(uuid.uuid4().hex, self._home / "t", arenas)
        self._traces.folder.mkdir()
        environment = {name: value for name, value in os.environ.items() if name not in _TERMINAL_SETTINGS}
        environment |= {"XDG_STATE_HOME": str(self._home / "state"), "COLUMNS": "1000", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            self._command,
            env=environment | self._traces.environment | dict(self._environment),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only this process, which then stops the server
        )
        self._reader = threading.Thread(target=self._read, name="server-output")
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self._end()
        give_up_at_s = time.monotonic() + _ORPHANS_TIMEOUT_S
        while self.pids() and time.monotonic() < give_up_at_s:
            time.sleep(_POLL_S)
        self._traces.kill_processes()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        for folder in (self._home, self._traces.arenas):
            shutil.rmtree(folder, ignore_errors=True)

    def _end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:  # to the end, because a talkative server would block on a full pipe
            self.lines.append(line.rstrip("\n"))
            if self._show is not None:
                self._show(self.lines[-1])

    @property
    def output(self) -> str:
        """All that the server has printed."""
        return "\n".join(self.lines)

    @property
    def temporary_folder(self) -> Path:
        """The folder of its temporary files."""
        return self._traces.folder

    @property
    def arena_folder(self) -> Path:
        """The folder of its arenas."""
        return self._traces.arenas

    @property
    def url(self) -> str:
        """The URL on which it listens. Waits until it does."""
        return self.wait_for(r"Listening on (\S+)")[1]

    @property
    def grpc_address(self) -> str:
        """The address of its gRPC port, e.g. ``127.0.0.1:8001``; empty without gRPC. Known once the server is ready."""
        match = self._search(r"(?i)\bgrpc\b[^\d]*([\d.]+:\d+)")
        return "" if match is None else match[1]

    def wait_for(self, pattern: str, timeout_s: float = START_TIMEOUT_S) -> re.Match[str]:
        """Waits for a line that matches, among those printed already too, and returns the first match.

        Raises:
            RuntimeError: If no line matches in time, or the server ends. The message shows what it did print.
        """
        give_up_at_s = time.monotonic() + timeout_s
        while True:
            has_ended = not self._reader.is_alive()
            if match := self._search(pattern):
                return match
            if has_ended or time.monotonic() > give_up_at_s:
                why = "the server ended" if has_ended else f"{timeout_s:g} s passed"
                raise RuntimeError(f"{why} before a line like {pattern!r}; it printed:\n{self.output}")
            time.sleep(_POLL_S)

    def _search(self, pattern: str) -> re.Match[str] | None:
        return next((match for line in list(self.lines) if (match := re.search(pattern, line))), None)

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> float:
        """Waits until every program has a replica. Returns how many seconds this took since the start; NaN if the server does not
        say.

        Raises:
            RuntimeError: If it is not ready in time, or ends. The message shows what it printed.
        """
        return float(self.wait_for(r"^Ready(?: after ([\d.]+) s)?", timeout_s)[1] or "nan")

    def stop(self, number: signal.Signals = signal.SIGINT, *, is_from_terminal: bool = False) -> float:
        """Sends a signal and waits until the server has ended. Returns how many seconds this took.

        Args:
            is_from_terminal: Whether to signal all its processes, as Ctrl-C does.

        Raises:
            RuntimeError: If it does not end in time.
        """
        started_s = time.monotonic()
        if is_from_terminal:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        self.wait()
        return time.monotonic() - started_s

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Waits until the server has ended and everything it printed is in `lines`.

        Raises:
            RuntimeError: If it does not end in time.
        """
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the server is still running after {timeout_s:g} s; it printed:\n{self.output}") from None
        self._reader.join(timeout_s)

    def pids(self) -> list[int]:
        """Returns the ids of all living processes of this server, including its Ray's."""
        return self._traces.pids()

    def leftovers(self, timeout_s: float = _ORPHANS_TIMEOUT_S) -> list[str]:
        """Returns what the ended server has left behind: processes, files, shared memory. What goes away in time does not
        count."""
        give_up_at_s = time.monotonic() + timeout_s
        left = self._traces.left()
        while left and time.monotonic() < give_up_at_s:
            time.sleep(_POLL_S)
            left = [leftover for leftover in self._traces.left() if leftover in left]  # what appears later belongs to others
        return left
