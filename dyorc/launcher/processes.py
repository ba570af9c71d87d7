"""Replicas' processes on this machine."""

import contextlib
import os
import signal
from pathlib import Path


def end_ray_process(pid: int) -> None:
    """Kills a process of Ray, if it is there.

    Serve's own checks would find out about a stopped process, too, but only after several timeouts.
    """
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):  # not another process that got the number
            os.kill(pid, signal.SIGKILL)
