"""Measures how late an event loop wakes up: what a request waits before anybody looks at it. Cost: 20 us, four times a second."""

import asyncio
from types import TracebackType
from typing import Self

from dyorc.engine.estimators import Histogram
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings

_INTERVAL_S = 0.25


class EventLoopLag:
    """Watches the running loop while entered."""

    def __init__(self) -> None:
        self._lags_ns = Histogram()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _INTERVAL_S
            await asyncio.sleep(_INTERVAL_S)
            self._lags_ns.add(max(0, int((loop.time() - due_s) * 1e9)))

    def measure(self, readings: Readings) -> None:
        """Adds what was measured."""
        readings.add_histogram(catalogue.LOOP_LAG, self._lags_ns, scale=1e-9)
