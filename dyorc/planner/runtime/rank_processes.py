"""The process of a rank, as its parent sees it, and how one is started from scratch."""

import os
import socket
import subprocess
import sys
from typing import Protocol

from dyorc.planner.runtime.rank_messages import Wire, wire_over


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
    """A process of its own, which imports everything first: that takes seconds."""

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
