"""Replicas' processes on this machine."""

import contextlib
import os
import signal
from pathlib import Path

_FORK_SERVER = b"dyorc.replica.fork_server"


def end_replica_process(pid: int) -> None:
    """Kills a replica's process, if it still runs; its Serve replica forks another.

    The Serve replica would also notice a stopped process itself, but later.
    """
    with contextlib.suppress(OSError):
        if _FORK_SERVER in Path(f"/proc/{pid}/cmdline").read_bytes():  # not another process with the same number
            os.kill(pid, signal.SIGKILL)


def end_children_with(folder: str) -> None:
    """Kills the children of this process that have `folder` in their command line."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            with contextlib.suppress(OSError):
                if os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
