"""Learned while serving: how long a batch takes, T(n) = b + a*n seconds, and how many calls follow from each that ends.

Of a program that declares what a call costs, n is the cost of a batch; of all others, its number of calls.
"""

import math
from collections.abc import Sequence

from dyorc.engine.estimators import Average
from dyorc.engine.model.program_call import Call

_MIN_SEEN = 8
"""The first batches are slow: libraries are loaded and kernels compiled."""
_PACE_RATE = 0.02


class LatencyModel:
    """A line through (size of a batch, seconds), by least squares with exponential decay. A size may be any number from 0 on.

    Cost: constant per observation. Source: the cost model of adaptive batchers (BentoML's CORK fits the same line over a
    window); decay instead of a window needs no history.

    Args:
        prior: Used before the first observation.
        decay: The factor by which each new observation reduces the weight of older ones.
    """

    __slots__ = ("_decay", "_line", "_n", "_nn", "_nt", "_prior", "_t", "_w")

    def __init__(self, prior: "LatencyModel | None" = None, decay: float = 0.98) -> None:
        self._prior = prior
        self._decay = decay
        self._w = self._n = self._nn = self._t = self._nt = 0.0
        self._line: tuple[float, float] | None = None
        """Computed once per observation, since it is asked for several times; None if not yet, or if it includes the prior."""

    def observe(self, size: float, seconds: float) -> None:
        """Learns that a batch of `size` took `seconds`."""
        keep = self._decay
        self._w = self._w * keep + 1.0
        self._n = self._n * keep + size
        self._nn = self._nn * keep + size * size
        self._t = self._t * keep + seconds
        self._nt = self._nt * keep + size * seconds
        self._line = None

    @property
    def line(self) -> tuple[float, float] | None:
        """(b, a) in seconds, both at least 0; None before the first observation."""
        if self._line is not None:
            return self._line
        if not self._w:
            return self._prior.line if self._prior else None
        mean_n, mean_t = self._n / self._w, self._t / self._w
        variance = self._nn / self._w - mean_n * mean_n
        if variance <= 1e-9 * mean_n * mean_n:
            # One size so far: the slope is unknown; the prior's shape, scaled to what was seen, is the best guess.
            shape = self._prior.line if self._prior else None
            expected = shape[0] + shape[1] * mean_n if shape else 0.0
            if shape and expected > 0:
                return shape[0] * mean_t / expected, shape[1] * mean_t / expected
            if self._prior is None:
                self._line = mean_t, 0.0
            return mean_t, 0.0
        slope = min(max((self._nt / self._w - mean_n * mean_t) / variance, 0.0), mean_t / mean_n)
        self._line = max(0.0, mean_t - slope * mean_n), slope  # rounding may have left less than nothing
        return self._line

    def predict(self, size: float) -> float | None:
        """Returns the expected seconds of a batch of `size`; None before the first observation."""
        line = self._line or self.line
        return None if line is None else line[0] + line[1] * size

    def efficient_size(self, cost: float = 1.0) -> int:
        """Returns how many calls of a cost make a batch that spends at least half of its time on them rather than on itself."""
        line = self._line or self.line
        if line is None or line[0] >= 2**30 * line[1] * cost:
            return 2**30
        return max(1, math.ceil(line[0] / (line[1] * cost)))


class LeastLatency:
    """The least that a batch is likely to take. Work is refused only on this estimate.

    The line predicts the average, which may be wrong: a few batches were slow, or a size was never seen. Here no size counts as
    larger than the largest seen, and the line is scaled by the speed of recent batches relative to it: by the fastest, with
    fading weight.

    Args:
        model: The line.
    """

    __slots__ = ("_largest", "_model", "_num_seen", "pace")

    def __init__(self, model: LatencyModel) -> None:
        self._model = model
        self._num_seen = 0
        self._largest = 0.0
        self.pace = 1.0

    def observe(self, size: float, seconds: float) -> None:
        """Learns that a batch of `size` took `seconds`. Call it before the model's own `observe`."""
        self._num_seen += 1
        self._largest = max(self._largest, size)
        expected_s = self._model.predict(size)
        if expected_s:
            pace = min(1.0, seconds / expected_s)
            self.pace = min(pace, self.pace + _PACE_RATE * (pace - self.pace))

    def predict(self, size: float) -> float | None:
        """Returns the expected seconds; None while too little is known."""
        if self._num_seen < _MIN_SEEN:
            return None
        expected_s = self._model.predict(min(size, self._largest))
        return None if expected_s is None else self.pace * expected_s


class MeanCost:
    """What a call of a program costs on average, with exponential decay.

    Args:
        decay: The factor by which each batch reduces the weight of older ones.
    """

    __slots__ = ("_calls", "_cost", "_decay")

    def __init__(self, decay: float = 0.98) -> None:
        self._decay = decay
        self._calls = self._cost = 0.0

    def observe(self, num_calls: int, cost: float) -> None:
        """Learns what all calls of a batch cost together."""
        self._calls = self._calls * self._decay + num_calls
        self._cost = self._cost * self._decay + cost

    @property
    def value(self) -> float:
        """The mean; 1 before the first batch."""
        return self._cost / self._calls if self._calls else 1.0


class LoopRatio:
    """The fraction of a program's calls that another call of it follows as soon as they end, as in a loop.

    Which calls a decision leads to is unknown until it is taken, but how many usually follow is known.
    """

    __slots__ = ("_at_ns", "_num_ended", "_num_followed", "_ratio", "_requests")

    def __init__(self) -> None:
        self._ratio = Average()
        self._at_ns = -1
        self._num_ended = self._num_followed = 0
        self._requests: set[int] = set()

    def calls_ended(self, calls: Sequence[Call], now_ns: int) -> None:
        """Notes calls that ended in this turn of the engine."""
        if self._at_ns != now_ns:
            if self._num_ended:
                self._ratio.add(self._num_followed / self._num_ended)
            self._at_ns = now_ns
            self._num_ended = self._num_followed = 0
            self._requests.clear()
        self._num_ended += len(calls)
        self._requests.update([call.context.number for call in calls])

    def call_submitted(self, call: Call, now_ns: int) -> None:
        """Notes a call whose inputs are all there."""
        if self._at_ns == now_ns and call.context.number in self._requests:
            self._num_followed += 1

    def calls_submitted(self, calls: Sequence[Call], now_ns: int) -> None:
        """Notes calls whose inputs are all there."""
        if self._at_ns == now_ns:
            for call in calls:
                self._num_followed += call.context.number in self._requests

    @property
    def ratio(self) -> float:
        """Calls that follow, for each call that ends."""
        return self._ratio.value
