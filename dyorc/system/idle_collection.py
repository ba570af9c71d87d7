"""Collects garbage when nothing else is to be done: a collection holds up all threads, in a server for 10 ms and more."""

import asyncio
import gc
import time
from collections.abc import Callable

_LOOK_S = 0.25
_NUM_IDLE = 20
"""So many looks, one after another, find nothing that runs."""
_LATEST_S = 60.0
_MAX_ASKED = 8
"""A collection is not put off for more than so many."""


class IdleCollection:
    """One collection at a time, for whatever has asked meanwhile. Used on the event loop.

    Args:
        is_idle: Returns whether nothing runs that a collection would hold up.
    """

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self._timer: asyncio.TimerHandle | None = None
        self._num_idle = self._num_asked = 0
        self._latest_s = 0.0

    def ask(self) -> None:
        """Collects once it was idle at each look for five seconds, or a minute has passed, or this was called often."""
        self._num_asked += 1
        if self._timer is None:
            self._num_idle, self._latest_s = 0, time.monotonic() + _LATEST_S
            self._look_later()

    def close(self) -> None:
        """Collects nothing from now on."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._num_idle = self._num_idle + 1 if self._is_idle() else 0
        if self._num_idle < _NUM_IDLE and self._num_asked < _MAX_ASKED and time.monotonic() < self._latest_s:
            self._look_later()
            return
        self._timer, self._num_asked = None, 0
        gc.collect()
