"""Starts ranks in milliseconds: one process imports what they need, which takes seconds, and forks them.

    with Nursery() as nursery, Ranks(options, nursery.fork) as ranks:
        ...

`Ranks` has one of its own if it is given none. Whoever runs many groups shares one.
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
from typing import TypeAlias

from dyorc.errors import PlanRunError
from dyorc.offline.runtime import orders
from dyorc.offline.runtime.processes import RankProcess
from dyorc.offline.runtime.wire import Wire, wire_over

_END_TIMEOUT_S = 10.0
_MAX_ATTEMPTS = 2
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""More would be started when the libraries are loaded, and be lost by a fork."""


class ForkedRankProcess:
    """A process that was forked. Its parent is the nursery's process, which tells how it has ended.

    Args:
        pid: Its number.
        process: A pidfd of it, this object's from now on.
        told: Where its exit code is told, this object's from now on; it ends without one when the nursery's process is killed.
        wire: The wire to it.
    """

    def __init__(self, pid: int, process: int, told: int, wire: Wire) -> None:
        self.pid = pid
        self.wire = wire
        self._process = process
        self._told = told
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
            if _is_readable(self._told, until_s - time.monotonic()):
                told = os.read(self._told, 16)
                self._exit_code = int(told) if told else None
            self._has_ended = True
            os.close(self._process)
            os.close(self._told)
        return self._exit_code


_Running: TypeAlias = tuple[subprocess.Popen[bytes], socket.socket]
"""The nursery's process, and the connection to it. It ends when that is closed."""


class RankForkServer:
    """Forks ranks. A context manager, for any thread. It may be used again after it was closed.

    A rank gets the environment, folder and output of this process as they are when it is forked; only what libraries read while
    they are imported is as it was when the nursery was started.

    Args:
        timeout_s: How long its process may take to import, and then to fork.
        rank: The module whose `become_rank` makes a forked process a rank.
    """

    def __init__(self, timeout_s: float = 120.0, rank: str = "dyorc.offline.runtime.rank") -> None:
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
        """The number of its process; None while there is none."""
        return self._running[0].pid if self._running else None

    def start(self) -> None:
        """Starts its process, which then imports; does not wait for that."""
        with self._lock:
            self._started()

    def remove_at_end(self, folder: str) -> None:
        """Has its process remove a folder when it ends: also if this process is killed, or ends without closing it.

        Args:
            folder: Known from the start of its process on, so from before `start` and `fork`; empty for none.
        """
        self._folder = folder

    def close(self) -> None:
        """Ends its process, and with it the ranks that still run."""
        with self._lock:
            if self._running and not self._has_forked:
                self._running[0].kill()  # it may still be importing, and has nobody to end
            self._end()

    def fork(self, send_timeout_s: float) -> RankProcess:
        """Starts the process of a rank: a `StartRank`. If the nursery's process was killed, another takes its place.

        Raises:
            PlanRunError: None can be forked.
        """
        with self._lock:
            code = None
            for _ in range(_MAX_ATTEMPTS):
                try:
                    return self._forked(self._started(), send_timeout_s)
                except (EOFError, ConnectionError):
                    code = self._end()
            raise _error(f"the process that forks ranks ended with exit code {code} before it had forked one")

    def _forked(self, running: _Running, send_timeout_s: float) -> ForkedRankProcess:
        process, line = running
        ours, its = socket.socketpair()
        told, tell = os.pipe()
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        try:
            orders.send(line, {**os.environ, "OMP_NUM_THREADS": "1"}, [its.fileno(), tell, folder, 1, 2])
            answer, descriptors = orders.receive(line)
        except BaseException as error:
            ours.close()  # a rank that was forked, but not announced, ends with that
            os.close(told)
            if not isinstance(error, EOFError | ConnectionError):
                process.kill()  # an answer that comes later would be taken for that of the next order
                self._end()
            if isinstance(error, TimeoutError):
                raise _error(f"the process that forks ranks has not answered within {self._timeout_s:g} s") from None
            raise
        finally:
            its.close()
            os.close(tell)
            os.close(folder)
        self._has_forked = True
        return ForkedRankProcess(answer["pid"], descriptors[0], told, wire_over(ours, send_timeout_s))

    def _started(self) -> _Running:
        if self._running is None:
            ours, its = socket.socketpair()
            with its:
                module = "dyorc.offline.runtime.nursery_process"
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
