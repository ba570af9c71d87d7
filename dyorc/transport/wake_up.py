"""Ends another thread's wait for messages, without polling."""

import contextlib
import os
import select
import threading
from typing import Self


class WakeUp:
    """A thread that waits for messages also waits for this; any other thread can set it. Open while entered.

    Set it after what it announces was put in place. The waiting thread clears it first, and then looks for all that is there: so
    nothing is missed, and what is announced several times in between wakes it once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._is_open = False

    def __enter__(self) -> Self:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._is_open = True
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._is_open = False
            os.close(self._write_end)
        os.close(self._read_end)

    @property
    def is_set(self) -> bool:
        """Whether it was set since it was last cleared."""
        return self._is_set

    def fileno(self) -> int:
        """Returns the descriptor that is readable while it is set."""
        return self._read_end

    def set(self) -> None:
        """Ends the wait of the other thread, or its next one. Any thread, also once it is closed."""
        with self._lock:
            if self._is_open and not self._is_set:
                self._is_set = True
                os.write(self._write_end, b"1")

    def clear(self) -> bool:
        """Clears it; returns whether it was set."""
        with self._lock:
            if not self._is_set:
                return False
            self._is_set = False
            with contextlib.suppress(BlockingIOError):
                os.read(self._read_end, 16)
            return True

    def wait_beside(self, descriptor: int | None, timeout_s: float) -> bool:
        """Waits until a descriptor is readable, this is set, or the time is over. Returns whether the descriptor is readable."""
        poller = select.poll()
        poller.register(self._read_end, select.POLLIN)
        if descriptor is not None:
            poller.register(descriptor, select.POLLIN)
        ready = poller.poll(max(0.0, timeout_s) * 1000)
        return any(number == descriptor for number, _ in ready)
