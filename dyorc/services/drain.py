"""How long a server that stops may still wait for what it has taken on."""

import time
from typing import Self


class Drain:
    """Begins when it is left, so that all who wait during a stop share one limit.

    Args:
        timeout_s: The limit.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
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
