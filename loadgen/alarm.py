"""Wakes an event loop at a time of the monotonic clock, to within about ten microseconds.

The timers of uvloop and asyncio are rounded to milliseconds, which is longer than many answers take. Linux has timers with a file
descriptor (timerfd), exact to the nanosecond, which a loop can watch like a socket. Elsewhere the loop's own timers have to do.
"""

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_TFD_TIMER_ABSTIME = 1
_NS_PER_S = 1_000_000_000


class Alarm:
    """Calls a function in the loop when the time that was last set has come.

    Args:
        ring: The function to call; it may set the next time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1
        self._is_set = False
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._when = (ctypes.c_long * 4)()
            """Returns a struct itimerspec: the interval (none), then the time, each in seconds and nanoseconds."""
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
            if self._fd >= 0:
                loop.add_reader(self._fd, self._expired)

    def set(self, when_ns: int) -> None:
        """Rings at `when_ns`, or soon if that has passed. Replaces an earlier setting."""
        if sys.platform != "linux" or self._fd < 0:
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_later(max(0, when_ns - time.monotonic_ns()) / _NS_PER_S, self._ring)
            return
        self._is_set = True
        self._when[2], self._when[3] = divmod(max(1, when_ns), _NS_PER_S)
        self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, self._when, None)

    def close(self) -> None:
        """Stops ringing."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _expired(self) -> None:
        self._is_set = False
        self._ring()
        if not self._is_set:  # setting it again clears its expiry, which saves a system call
            with contextlib.suppress(BlockingIOError):
                os.read(self._fd, 8)
