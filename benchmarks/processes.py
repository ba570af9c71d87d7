"""Makes sure that a benchmark server leaves no process behind, whoever started it.

Linux only: the calling process inherits its orphaned descendants (it becomes a "child subreaper"). So everything that a server
started, in any session or process group, becomes a child of the caller and can be waited for. Processes that the caller did not
start, directly or indirectly, are left alone. Called from main threads, and in the peers' environments too, so it needs only the
standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on, descendants that lose their parent become children of this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def end_children(grace_s: float) -> list[str]:
    """Waits until this process has no children left, and kills the ones that outlive `grace_s`.

    Call it when no child is needed any more: it takes the exit status of every child.

    Returns:
        The command lines of the children that had to be killed.
    """
    kill_at_s = time.monotonic() + grace_s
    killed: list[str] = []
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return killed
        if pid != 0:
            continue
        if time.monotonic() > kill_at_s:
            killed += _kill_children()
        time.sleep(0.02)


def _kill_children() -> list[str]:
    # A killed child's own children become ours, and the loop finds them in its next rounds.
    killed: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z" and int(parent) == os.getpid():
                killed.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
                os.kill(int(entry.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return killed
