"""Gives memory back to the device and to the system once a program has been dropped, and tells how old this process is."""

import contextlib
import gc
import os
import sys
import time

from dyorc.system import malloc


def free_memory() -> None:
    """Frees what nothing refers to any more: cycles, torch's cache on the device, and free memory of the allocator."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    malloc.give_back()


def process_age_s() -> float:
    """Returns how long ago this process was started or forked, in seconds; 0 if the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    return 0.0
