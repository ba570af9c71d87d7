"""What ties a process to the one that has started it. Only the standard library."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends, even if this process hangs.

    Only Linux's kernel can; elsewhere, the process has to notice the end itself.

    Args:
        parent: Its process id. The thread that has started this process must live as long as the parent does.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)
