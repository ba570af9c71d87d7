"""Servers that all run, of which one at a time has the processor: the others are stopped (SIGSTOP) while it is measured.

So systems can take turns within seconds, though each takes up to half a minute to start, and even an idle Ray uses a quarter of a
core. Between two measurements all of them run for a moment, so that nobody is taken for dead by its peers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

_BREATH_S = 0.3


class Pausable(Protocol):
    """A running server."""

    def pause(self) -> None:
        """Stops all its processes."""
        ...

    def resume(self) -> None:
        """Lets them go on."""
        ...


class Stage:
    """The servers that run."""

    def __init__(self, breath_s: float = _BREATH_S, sleep: Callable[[float], None] = time.sleep) -> None:
        self._servers: list[Pausable] = []
        self._breath_s = breath_s
        self._sleep = sleep

    @contextmanager
    def on_stage(self, server: Pausable) -> Generator[None]:
        """Takes part in the turns while entered."""
        self._servers.append(server)
        try:
            yield
        finally:
            self._servers.remove(server)

    @contextmanager
    def alone(self, server: Pausable) -> Generator[None]:
        """Stops all other servers while entered."""
        others = [other for other in self._servers if other is not server]
        try:
            for other in others:
                other.pause()
            yield
        finally:
            for other in others:
                other.resume()
        if others:
            self._sleep(self._breath_s)
