"""Starts the processes of ranks: from scratch in seconds, or by a fork server in milliseconds.

    with RankForkServer() as server, Ranks(options, server.fork) as ranks:
        ...

A fork server is one process that imports what ranks need, which takes seconds, and forks them. `Ranks` starts its own by default.
Share one to run many groups.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Protocol, TypeAlias

from dyorc.errors import PlanRunError
from dyorc.planner.runtime import descriptor_messages
from dyorc.planner.runtime.rank_messages import Wire, wire_over
from dyorc.system.linux_only import require_linux


class RankProcess(Protocol):
    """A rank's process. It ends when the wire to it is closed."""

    @property
    def wire(self) -> Wire:
        """The parent's end of the wire."""
        ...

    @property
    def pid(self) -> int:
        """The number of the process."""
        ...

    def kill(self) -> None:
        """Kills it, if it has not ended."""
        ...

    def wait(self, timeout_s: float) -> int | None:
        """Waits until it has ended, and returns its exit code, negative for a signal; None if unknown.

        Raises:
            TimeoutError: It has not ended within this time.
        """
        ...


class StartRank(Protocol):
    """Starts the process of a rank."""

    def __call__(self, send_timeout_s: float) -> RankProcess:
        """Starts one; to send to it may take so long."""
        ...


class SpawnedRankProcess:
    """A new process, which imports everything first: that takes seconds."""

    def __init__(self, process: subprocess.Popen[bytes], wire: Wire) -> None:
        self._process = process
        self.wire = wire

    @property
    def pid(self) -> int:
        """See `RankProcess`."""
        return self._process.pid

    def kill(self) -> None:
        """See `RankProcess`."""
        self._process.kill()

    def wait(self, timeout_s: float) -> int | None:
        """See `RankProcess`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None


def spawn_rank(send_timeout_s: float) -> RankProcess:
    """Starts a process."""
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", "dyorc.planner.runtime.rank", str(its.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
    return SpawnedRankProcess(process, wire_over(ours, send_timeout_s))


_END_TIMEOUT_S = 10.0
_MAX_ATTEMPTS = 2
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""More would be started when the libraries are loaded, and be lost by a fork."""


class ForkedRankProcess:
    """A forked rank. Its parent is the fork server's process, which reports its exit code.

    Args:
        pid: Its number.
        process: A pidfd of it, this object's from now on.
        exit_pipe: Carries its exit code, this object's from now on; empty if the fork server's process is killed.
        wire: The wire to it.
    """

    def __init__(self, pid: int, process: int, exit_pipe: int, wire: Wire) -> None:
        self.pid = pid
        self.wire = wire
        self._process = process
        self._exit_pipe = exit_pipe
        self._has_ended = False
        self._exit_code: int | None = None

    def kill(self) -> None:
        """See `RankProcess`."""
        if not self._has_ended:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def wait(self, timeout_s: float) -> int | None:
        """See `RankProcess`."""
        if not self._has_ended:
            until_s = time.monotonic() + timeout_s
            if not _is_readable(self._process, timeout_s):
                raise TimeoutError
            if _is_readable(self._exit_pipe, until_s - time.monotonic()):
                text = os.read(self._exit_pipe, 16)
                self._exit_code = int(text) if text else None
            self._has_ended = True
            os.close(self._process)
            os.close(self._exit_pipe)
        return self._exit_code


_Running: TypeAlias = tuple[subprocess.Popen[bytes], socket.socket]
"""The fork server's process, and the connection to it. It ends when that is closed."""


class RankForkServer:
    """Forks ranks. A context manager, for any thread. It may be used again after it was closed.

    A rank gets the environment, folder and output of this process as they are when it is forked; only what libraries read while
    they are imported is as it was when the fork server was started.

    Args:
        timeout_s: How long its process may take to import, and then to fork.
        rank: The module whose `become_rank` makes a forked process a rank.
    """

    def __init__(self, timeout_s: float = 120.0, rank: str = "dyorc.planner.runtime.rank") -> None:
        self._timeout_s = timeout_s
        self._rank = rank
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._folder = ""
        self._has_forked = False

    def __enter__(self) -> "RankForkServer":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The number of its process; None while it has no process."""
        return self._running[0].pid if self._running else None

    def start(self) -> None:
        """Starts its process, which then imports; does not wait for that."""
        with self._lock:
            self._ensure_started()

    def remove_at_end(self, folder: str) -> None:
        """Sets a folder that its process removes when it ends, also if this process is killed or does not close it.

        Args:
            folder: Known from the start of its process on, so from before `start` and `fork`; empty for none.
        """
        self._folder = folder

    def close(self) -> None:
        """Ends its process, and with it the ranks that still run."""
        with self._lock:
            if self._running and not self._has_forked:
                self._running[0].kill()  # it may still be importing, and has no ranks to end
            self._end()

    def fork(self, send_timeout_s: float) -> RankProcess:
        """Starts the process of a rank: a `StartRank`. If the fork server's process was killed, another takes its place.

        Raises:
            PlanRunError: None can be forked.
            ConfigurationError: The system is not Linux.
        """
        require_linux("a program split over processes needs", "serve it without a plan")
        with self._lock:
            code = None
            for _ in range(_MAX_ATTEMPTS):
                try:
                    return self._fork_rank(self._ensure_started(), send_timeout_s)
                except (EOFError, ConnectionError):
                    code = self._end()
            raise _error(f"the process that forks ranks ended with exit code {code} before it had forked one")

    def _fork_rank(self, running: _Running, send_timeout_s: float) -> ForkedRankProcess:
        process, line = running
        ours, its = socket.socketpair()
        exit_pipe, exit_pipe_write = os.pipe()
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        try:
            descriptor_messages.send(line, {**os.environ, "OMP_NUM_THREADS": "1"}, [its.fileno(), exit_pipe_write, folder, 1, 2])
            answer, descriptors = descriptor_messages.receive(line)
        except BaseException as error:
            ours.close()  # a rank that was forked, but not announced, ends with that
            os.close(exit_pipe)
            if not isinstance(error, EOFError | ConnectionError):
                process.kill()  # an answer that comes later would be taken for that of the next order
                self._end()
            if isinstance(error, TimeoutError):
                raise _error(f"the process that forks ranks has not answered within {self._timeout_s:g} s") from None
            raise
        finally:
            its.close()
            os.close(exit_pipe_write)
            os.close(folder)
        self._has_forked = True
        return ForkedRankProcess(answer["pid"], descriptors[0], exit_pipe, wire_over(ours, send_timeout_s))

    def _ensure_started(self) -> _Running:
        if self._running is None:
            ours, its = socket.socketpair()
            with its:
                module = "dyorc.planner.runtime.rank_fork_server_process"
                process = subprocess.Popen(
                    [sys.executable, "-m", module, str(its.fileno()), self._rank, self._folder],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[its.fileno()],
                    env={**os.environ, **_ONE_THREAD},
                    start_new_session=True,  # Ctrl-C is the parent's to handle
                )
            ours.settimeout(self._timeout_s)
            self._running, self._has_forked = (process, ours), False
        return self._running

    def _end(self) -> int | None:
        """Returns the exit code, negative for a signal; None if there was no process."""
        if self._running is None:
            return None
        (process, end), self._running = self._running, None
        end.close()
        try:
            return process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _is_readable(descriptor: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def _error(text: str) -> PlanRunError:
    return PlanRunError(text, rank=None, step=None)
