"""An event loop whose turns, and their lengths, the test decides."""

from collections.abc import Callable

from dyorc.gateway.shedding import LoopLag


class Loop:
    """The part of a loop that its lag depends on."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self._ready: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def clock_s(self) -> float:
        return self.now_ns / 1e9

    def clock_ns(self) -> int:
        return self.now_ns

    @property
    def is_idle(self) -> bool:
        return not self._ready

    def turn(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
        ready, self._ready = self._ready, []
        for callback in ready:
            callback()


def busy(loop: Loop, lag: LoopLag, *turns_s: float, num: int = 1) -> None:
    """Takes turns of such a length, with requests in each."""
    for turn_s in turns_s:
        for _ in range(num):
            lag.on_request()
            lag.on_admitted()
        loop.turn(turn_s)
