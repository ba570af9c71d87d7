"""What shapes are made of: a process of DyOrc that is struck and started again, and folders that can be full."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from dyorc.testing import ServerProcess
from tests.deadlines import wait_until
from tests.storm.contract import Findings

BAD_LINES = ("Traceback (most recent call last)", "Fatal Python error", "SIGTERM received")
_LOST_LEAD = "another orchestrator leads"
"""What an orchestrator says last when it has lost its lead, which a moved clock or a busy machine may cause. Its status is 1."""
_BLOCK_BYTES = 2**16
_TAIL_LINES = 30
_ORPHANS_S = 10.0
_ENDS_S = 10.0
"""Until a process that has closed its output has ended."""
NUM_STARTS = 3


def reserved_port(stack: contextlib.ExitStack) -> int:
    """Binds a port and never listens: it stays ours while nobody has it."""
    reserved = stack.enter_context(socket.socket())
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return int(reserved.getsockname()[1])


class Member:
    """A process that is struck, and started again with the same options.

    Args:
        kind: What it is, such as ``gateway``.
        make: Returns the process, not started, with these further settings.
        wait: Returns once a started process does its work.
        hindered_until_s: Returns when a fault in which starts may fail was last over, by the monotonic clock.

    Attributes:
        process: The one that runs now.
    """

    process: ServerProcess

    def __init__(
        self,
        kind: str,
        make: Callable[[Mapping[str, str]], ServerProcess],
        wait: Callable[[ServerProcess], object],
        findings: Findings,
        hindered_until_s: Callable[[], float],
    ) -> None:
        self.kind = kind
        self._starts_s: deque[float] = deque([0.0], maxlen=NUM_STARTS)
        self._make = make
        self._wait = wait
        self._findings = findings
        self._hindered_until_s = hindered_until_s
        self._num_lines = 0
        self._is_up = False
        self._tail: list[str] = []

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.process.pid

    @property
    def start_s(self) -> float:
        """How long the longest of its last starts took: a machine is busy for a while, not for ever."""
        return max(self._starts_s)

    @property
    def num_lines(self) -> int:
        """How many lines all of its processes have printed after they were ready."""
        return self._num_lines + (max(0, len(self.process.lines) - self._num_start_lines) if self._is_up else 0)

    @property
    def tail(self) -> list[str]:
        """The last lines."""
        return [f"{self.kind}: {line}" for line in [*self._tail, *(self.process.lines if self._is_up else ())][-_TAIL_LINES:]]

    def start(self, settings: Mapping[str, str] | None = None, *, is_waited_for: bool = True) -> None:
        """Starts it."""
        self._began_s = time.monotonic()
        self._settings = settings or {}
        self.process = self._make(self._settings).__enter__()
        self._is_up, self._num_start_lines = True, 10**9
        if is_waited_for:
            self.wait()

    def wait(self) -> None:
        """Returns once it does its work. If its start failed, and began before a fault in which starts may fail was over, it is
        started again, as systemd would.

        Raises:
            RuntimeError: If it does not do its work in time, or ends without such a fault. The message shows what it printed.
        """
        while True:
            try:
                self._wait(self.process)
                break
            except RuntimeError:
                if not self._may_have_failed():
                    raise
            self._look_at_failed_start()
            self._is_up = False
            self.process.__exit__(None, None, None)
            self.start(self._settings, is_waited_for=False)
        self._starts_s.append(time.monotonic() - self._began_s)
        self._num_start_lines = len(self.process.lines)

    def _may_have_failed(self) -> bool:
        """Whether its process has ended, and its start began before a fault in which starts may fail was over."""
        if self._began_s >= self._hindered_until_s():
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.process.wait(_ENDS_S)
        return self.has_ended()

    def _look_at_failed_start(self) -> None:
        """Looks whether it ended as a server does that cannot start: with status 1 and without a traceback."""
        status, name = self.process.process.returncode, f"{self.kind} {self.pid}, which could not start,"
        if status != 1:
            self._findings.faults.append(f"{name} ended with {status}, expected 1: {'; '.join(self.process.lines[-5:])[:600]}")
        self._findings.faults += [f"{name} printed {line[:300]!r}" for line in self._bad_lines()]
        self._findings.leaks += [f"{name} left {thing}" for thing in self.process.leftovers()]

    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return not self._is_up or self.process.process.poll() is not None

    @property
    def has_lost_lead(self) -> bool:
        """Whether it has ended because another leads."""
        return self.has_ended() and any(_LOST_LEAD in line for line in self.process.lines[-_TAIL_LINES:])

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Has it end by a signal, and looks at what it leaves. After SIGKILL its files may stay; the next server removes them."""
        if not self._is_up:
            return
        if self.process.process.poll() is None:
            self.process.process.send_signal(number)
        try:
            self.process.wait()
        except RuntimeError as error:
            self._findings.faults.append(f"{self.kind} {self.pid} does not end after {number.name}: {str(error)[:300]}")
            self.process.process.kill()
            self.process.wait()
        self._look_at_end(number)
        self._num_lines, self._tail, self._is_up = self.num_lines, self.process.lines[-_TAIL_LINES:], False
        self.process.__exit__(None, None, None)

    def _look_at_end(self, number: signal.Signals) -> None:
        is_killed = number is signal.SIGKILL
        left = self._processes_left() if is_killed else self.process.leftovers()
        if not is_killed and self.process.process.returncode != 0 and not self.has_lost_lead:
            last = "; ".join(self.process.lines[-5:])
            self._findings.faults.append(f"{self.kind} {self.pid} ended with {self.process.process.returncode}: {last[:600]}")
        self._findings.leaks += [f"{self.kind} {self.pid} left {thing}" for thing in left]
        self._findings.faults += [f"{self.kind} {self.pid} printed {line[:300]!r}" for line in self._bad_lines()]

    def _bad_lines(self) -> list[str]:
        """Returns the first of its lines that no server may print."""
        return [line for line in self.process.lines if any(text in line for text in BAD_LINES)][:3]

    def _processes_left(self) -> list[str]:
        """Returns processes that outlive theirs by more than a moment."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.process.pids(), "all have ended", _ORPHANS_S)
        return [f"process {pid}" for pid in self.process.pids()]


class FillableFolder:
    """A folder of a fixed size.

    Attributes:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def _filler(self) -> Path:
        return self.path / "filler"

    def fill(self) -> None:
        """Takes all room that is left."""
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(_BLOCK_BYTES)):
                pass

    def empty(self) -> None:
        """Gives the room back."""
        self._filler.unlink(missing_ok=True)


class SmallFolder(FillableFolder):
    """One in memory, while entered. It exists without root, too, and then cannot be full.

    Attributes:
        can_be_full: Whether it has a size.
    """

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self.can_be_full = os.geteuid() == 0

    def __enter__(self) -> "SmallFolder":
        self.path = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
        if self.can_be_full:
            options = f"size={self._num_bytes},mode=0700"
            mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
            self.can_be_full = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        return self

    def __exit__(self, *_: object) -> None:
        if self.can_be_full:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        shutil.rmtree(self.path, ignore_errors=True)
