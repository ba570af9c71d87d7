"""An emulated accelerator: occupied for T(n) by each batch, without the interpreter's lock and without the processor.

A program has one device, also if several processes of a server run it: they take turns. Time begins when the device is free, and
preparing the batch's results is part of it. Most of it is slept through. Sleeping ends 60 to 100 µs late, more than some batches
may be off, so the last part is waited for in short steps. `python -m benchmarks.devices.check` measures how well time is kept.
"""

from __future__ import annotations

import ctypes
import fcntl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.devices.times import DeviceTime

_LAST_NS = 50_000
"""How long before the end sleeping ends."""
_PR_SET_TIMERSLACK = 29
_SLACK_NS = 1_000
"""How late the kernel may end a thread's sleep so that it need not wake up twice; 50 µs unless it is told."""


class Device:
    """The accelerator of one program, as this process sees it. Any thread.

    Args:
        time: T(n).
        lock_file: Shared by all processes of the server that run the program; it must exist.
        clock_ns, sleep: Replaced in tests.

    Attributes:
        busy_ns: How long it has been occupied by this process, as measured.
    """

    def __init__(
        self,
        time: DeviceTime,
        lock_file: Path,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._time = time
        self._lock = threading.Lock()
        self._shared = lock_file.open("rb")
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._precise = threading.local()
        self.busy_ns = 0

    @contextmanager
    def batch(self, size: int) -> Generator[None]:
        """Occupies the device for a batch; what is done while entered takes place meanwhile."""
        with self._lock:
            fcntl.flock(self._shared, fcntl.LOCK_EX)
            try:
                began_ns = self._clock_ns()
                yield
                self._wait_until(began_ns + round(self._time.batch_s(size) * 1e9))
                self.busy_ns += self._clock_ns() - began_ns
            finally:
                fcntl.flock(self._shared, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes its file."""
        self._shared.close()

    def _wait_until(self, end_ns: int) -> None:
        if not hasattr(self._precise, "is_set"):
            self._precise.is_set = ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0) == 0
        while (left_ns := end_ns - self._clock_ns()) > 0:
            self._sleep(max(0, left_ns - _LAST_NS) / 1e9)
