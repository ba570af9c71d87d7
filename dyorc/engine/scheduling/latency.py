"""How long a batch takes, learned while serving: T(n) = b + a*n seconds."""

import math

_MIN_SEEN = 8
"""The first batches are slow: libraries are loaded and kernels compiled."""
_PACE_RATE = 0.02


class LatencyModel:
    """A line through (batch size, seconds), by least squares with exponential decay.

    Cost: constant per observation. Source: the cost model of adaptive batchers (BentoML's CORK fits the same line over a
    window); decay instead of a window needs no history.

    Args:
        prior: Used until it has observations of its own.
        decay: The factor by which each new observation reduces the weight of older ones.
    """

    __slots__ = ("_decay", "_line", "_n", "_nn", "_nt", "_prior", "_t", "_w")

    def __init__(self, prior: "LatencyModel | None" = None, decay: float = 0.98) -> None:
        self._prior = prior
        self._decay = decay
        self._w = self._n = self._nn = self._t = self._nt = 0.0
        self._line: tuple[float, float] | None = None
        """Computed once per observation, since it is asked for several times; None if not yet, or if it includes the prior."""

    def observe(self, size: int, seconds: float) -> None:
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
        if variance < 1e-9 * max(1.0, mean_n * mean_n):
            # One size so far: the slope is unknown; the prior's shape, scaled to what was seen, is the best guess.
            shape = self._prior.line if self._prior else None
            expected = shape[0] + shape[1] * mean_n if shape else 0.0
            if shape and expected > 0:
                return shape[0] * mean_t / expected, shape[1] * mean_t / expected
            if self._prior is None:
                self._line = mean_t, 0.0
            return mean_t, 0.0
        slope = min(max((self._nt / self._w - mean_n * mean_t) / variance, 0.0), mean_t / mean_n)
        self._line = mean_t - slope * mean_n, slope
        return self._line

    def predict(self, size: int) -> float | None:
        """Returns the expected seconds of a batch of `size`; None before the first observation."""
        line = self._line or self.line
        return None if line is None else line[0] + line[1] * size

    def efficient_size(self) -> int:
        """Returns the size b/a from which a batch spends at least half of its time on its calls rather than on itself."""
        line = self._line or self.line
        if line is None or line[1] <= 0:
            return 2**30
        return max(1, math.ceil(line[0] / line[1]))


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
        self._largest = 0
        self.pace = 1.0

    def observe(self, size: int, seconds: float) -> None:
        """Learns that a batch of `size` took `seconds`. Call it before the model's own `observe`."""
        self._num_seen += 1
        self._largest = max(self._largest, size)
        expected_s = self._model.predict(size)
        if expected_s:
            pace = min(1.0, seconds / expected_s)
            self.pace = min(pace, self.pace + _PACE_RATE * (pace - self.pace))

    def predict(self, size: int) -> float | None:
        """Returns the expected seconds; None while too little is known."""
        if self._num_seen < _MIN_SEEN:
            return None
        expected_s = self._model.predict(min(size, self._largest))
        return None if expected_s is None else self.pace * expected_s


class Average:
    """A mean with exponential decay; 0 before the first value."""

    __slots__ = ("_num_seen", "_rate", "value")

    def __init__(self, rate: float = 0.05) -> None:
        self._rate = rate
        self._num_seen = 0
        self.value = 0.0

    def add(self, value: float) -> None:
        """Adds a value."""
        self._num_seen += 1
        self.value += max(self._rate, 1 / self._num_seen) * (value - self.value)


class Rate:
    """Events per second, forgotten exponentially.

    Args:
        window_s: Time constant, in seconds.
    """

    __slots__ = ("_count", "_from_ns", "_last_ns", "_window_s")

    def __init__(self, window_s: float = 1.0) -> None:
        self._window_s = window_s
        self._count = 0.0
        self._last_ns = 0
        self._from_ns: int | None = None

    def add(self, count: float, now_ns: int) -> None:
        """Adds this many events."""
        if self._from_ns is None:
            self._from_ns = self._last_ns = now_ns
        self._count = self._count * math.exp((self._last_ns - now_ns) / (self._window_s * 1e9)) + count
        self._last_ns = now_ns

    def per_s(self, now_ns: int) -> float | None:
        """Returns the rate; None until a tenth of the window has passed, because a single burst says nothing."""
        if self._from_ns is None:
            return None
        age_s = (now_ns - self._from_ns) / 1e9
        if age_s < 0.1 * self._window_s:
            return None
        filled_s = self._window_s * -math.expm1(-age_s / self._window_s)
        return self._count * math.exp((self._last_ns - now_ns) / (self._window_s * 1e9)) / filled_s


def queueing_delay_s(busy_s: float, rate: float, num_servers: int, num_idle: int) -> float:
    """Returns how much longer calls are expected to wait, in all, if one of the idle servers is busy this long, in seconds.

    Args:
        rate: Calls per second.
    """
    num_arrivals = rate * busy_s
    # With other servers idle, a call waits only if enough others come first.
    return num_arrivals * busy_s / (2 * num_servers * num_servers) * min(1.0, num_arrivals / num_idle) ** (num_idle - 1)
