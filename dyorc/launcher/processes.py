"""Replicas' processes on this machine."""

import contextlib
import os
import signal
from pathlib import Path


def end_ray_process(pid: int) -> None:
    """Kills a process of Ray, if it still runs.

    Serve's own checks would also notice a stopped process, but only after several timeouts.
    """
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):  # not another process that was given the number
            os.kill(pid, signal.SIGKILL)


def end_children_with(folder: str) -> None:
    """Kills the children of this process that have `folder` in their command line."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            with contextlib.suppress(OSError):
                if os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
