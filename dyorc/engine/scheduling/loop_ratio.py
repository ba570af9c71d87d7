"""Which part of a program's calls is followed by another call of it as soon as they end, as in a loop. Learned while serving.

Which calls a decision leads to is not known before it is taken, but how many usually follow is.
"""

from collections.abc import Sequence

from dyorc.engine.model.calls import Call
from dyorc.engine.scheduling.latency import Average


class LoopRatio:
    """Counts calls of a program whose requests have just had a call of it back."""

    __slots__ = ("_at_ns", "_num_ended", "_num_followed", "_ratio", "_requests")

    def __init__(self) -> None:
        self._ratio = Average()
        self._at_ns = -1
        self._num_ended = self._num_followed = 0
        self._requests: set[int] = set()

    def ended(self, calls: Sequence[Call], now_ns: int) -> None:
        """Notes calls that ended in this turn of the engine."""
        if self._at_ns != now_ns:
            if self._num_ended:
                self._ratio.add(self._num_followed / self._num_ended)
            self._at_ns = now_ns
            self._num_ended = self._num_followed = 0
            self._requests.clear()
        self._num_ended += len(calls)
        self._requests.update([call.context.number for call in calls])

    def submitted(self, call: Call, now_ns: int) -> None:
        """Notes a call whose inputs are all there."""
        if self._at_ns == now_ns and call.context.number in self._requests:
            self._num_followed += 1

    @property
    def ratio(self) -> float:
        """Calls that follow, for each call that ends."""
        return self._ratio.value
