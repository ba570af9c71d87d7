"""Makes the GNU C library keep memory that programs free. Without that library, nothing here has an effect.

A batch takes megabytes for a while, and the next one takes them again. By default, each thread has its own heap, and memory freed
there goes back to the system: the next batch then touches fresh pages, which the system has to clear first. In a process that
runs programs, freed memory stays on one heap until `give_back`.
"""

import contextlib
import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Numbers of `mallopt`'s parameters."""
_KEPT_BYTES = 256 * 2**20
"""The most free memory that stays at the heap's end."""
_LARGEST_BYTES = 32 * 2**20
"""Larger blocks are never part of the heap, and go back at once. The most that the library allows."""


def keep_freed() -> None:
    """Makes this process keep freed memory. Call it at the start: threads that already have a heap keep it.

    Settings in the environment (`MALLOC_ARENA_MAX`, `GLIBC_TUNABLES`) take precedence.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back() -> None:
    """Returns all free memory to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
