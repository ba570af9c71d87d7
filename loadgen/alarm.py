"""Wakes an event loop at a time of the monotonic clock, to within some ten microseconds.

Timers of uvloop, as those of asyncio, are rounded to milliseconds, which is longer than many an answer takes. Linux tells the
time through a file descriptor to the nanosecond (timerfd), which a loop can watch as it does a socket. Elsewhere the loop's own
timers have to do.
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
        ring: Called; may set the next time.
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
            """A struct itimerspec: the interval (none), then the time, each in seconds and nanoseconds."""
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
            if self._fd >= 0:
                loop.add_reader(self._fd, self._expired)

    def set(self, when_ns: int) -> None:
        """Rings at `when_ns`; soon, if that is over. Replaces what was set before."""
        if self._fd < 0:
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_later(max(0, when_ns - time.monotonic_ns()) / _NS_PER_S, self._ring)
            return
        self._is_set = True
        self._when[2], self._when[3] = divmod(max(1, when_ns), _NS_PER_S)
        self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, self._when, None)

    def close(self) -> None:
        """Does not ring any more."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _expired(self) -> None:
        self._is_set = False
        self._ring()
        if not self._is_set:  # setting it anew takes back that it has expired, and saves a system call
            with contextlib.suppress(BlockingIOError):
                os.read(self._fd, 8)
