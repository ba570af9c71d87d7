"""How a server that stops brings to an end what it has taken on."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Self

from dyorc.server.stop_signals import before

Finish = Callable[[float], Awaitable[object]]
"""Has something take in nothing new, from the first step on, and finish what it has; what takes more seconds than given is cut
off. May be called again, with less time."""


class Drain:
    """Begins when it is left, so that all who wait during a stop share one limit.

    Args:
        timeout_s: The limit.
        hurry: When it is set, nothing is waited for.
    """

    def __init__(self, timeout_s: float, hurry: asyncio.Event) -> None:
        self._timeout_s = timeout_s
        self._hurry = hurry
        self._began_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._began_s = time.monotonic()

    @property
    def left_s(self) -> float:
        """How much of it is left, at least 0; all before it has begun."""
        passed_s = 0.0 if self._began_s is None else time.monotonic() - self._began_s
        return max(0.0, self._timeout_s - passed_s)

    async def finish(self, *parts: Finish) -> None:
        """Finishes all parts, side by side, in the time that is left."""
        left_s = self.left_s
        if not await before(self._hurry, asyncio.gather(*(part(left_s) for part in parts))):
            await asyncio.gather(*(part(0.0) for part in parts))
