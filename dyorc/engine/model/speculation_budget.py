"""Whether a request guesses, what its guesses cost, and how much they may waste."""

import math

from dyorc.config import SpeculationConfig


class Bet:
    """Device time spent on a call before it was certain.

    Attributes:
        probability: Of being needed.
        saved_s: How much sooner its result is expected thanks to the bet, in seconds.
        share_s: Its share of its batch's expected time, in seconds.
        price_s: How much longer other calls are expected to wait in all if the guess is wrong, in seconds.
        slows_s: How much longer concurrent batches are expected to take in all, right or wrong, in seconds.
    """

    __slots__ = ("price_s", "probability", "saved_s", "share_s", "slows_s")

    def __init__(self, probability: float, saved_s: float, share_s: float = 0.0, price_s: float = 0.0) -> None:
        self.probability = probability
        self.saved_s = saved_s
        self.share_s = share_s
        self.price_s = price_s
        self.slows_s = 0.0

    def pays(self, margin: float) -> bool:
        """Returns whether it saves this many times what it costs, as far as can be expected."""
        return self.probability * self.saved_s > margin * ((1 - self.probability) * self.price_s + self.slows_s)

    def describe(self) -> dict[str, float]:
        """Returns what was expected of the call, as plain values."""
        return {
            "probability": round(self.probability, 3),
            "saves_ms": round(self.saved_s * 1e3, 3),
            "costs_others_ms": round(self.price_s * 1e3, 3),
            "slows_others_ms": round(self.slows_s * 1e3, 3),
        }

    @property
    def waste_s(self) -> float:
        """Device time it is expected to waste, in seconds."""
        return (1 - self.probability) * self.share_s


class SpeculationBudget:
    """A token bucket of device time that may be wasted, filled by device time that was useful.

    Attributes:
        useful_s: Device time of calls that were needed.
        wasted_s: Device time of calls that were not.
        reserved_s: Expected waste of open bets.
    """

    __slots__ = ("_burst_s", "_rate", "_tokens_s", "reserved_s", "useful_s", "wasted_s")

    def __init__(self, config: SpeculationConfig) -> None:
        self._rate = config.max_wasted_ratio / (1 - config.max_wasted_ratio)
        self._burst_s = self._tokens_s = config.burst_s if config.max_wasted_ratio else 0.0
        self.useful_s = self.wasted_s = self.reserved_s = 0.0

    def report(self) -> dict[str, float]:
        """Returns the figures as plain values."""
        spent_s = self.useful_s + self.wasted_s
        return {
            "useful_s": round(self.useful_s, 6),
            "wasted_s": round(self.wasted_s, 6),
            "wasted_ratio": round(self.wasted_s / spent_s, 6) if spent_s else 0.0,
        }

    def can_waste(self, seconds: float) -> bool:
        """Returns whether there is room for a bet with this expected waste."""
        return self._tokens_s - self.reserved_s >= seconds

    def use(self, seconds: float) -> None:
        """Adds device time that went to a call that is needed."""
        self.useful_s += seconds
        self._tokens_s = min(self._burst_s, self._tokens_s + self._rate * seconds)

    def waste(self, seconds: float) -> None:
        """Adds device time that went to a call that is not needed."""
        self.wasted_s += seconds
        self._tokens_s -= seconds


_NUM_REQUESTS = 12
"""A round has at least this many requests ..."""
_MIN_ROUND_NS = 250_000_000
"""... and lasts at least this long."""


class Round:
    """Successive requests of one workflow that all guess, or all do not (`dyorc.engine.guessing.speculation_trial`).

    Attributes:
        is_guessing: Whether they guess.
        has_guessed: Whether one of them has followed an outcome before it was known. That costs, even if no call runs ahead.
    """

    __slots__ = ("_num_ended", "_sum", "has_guessed", "is_closed", "is_guessing", "num_arrived", "started_ns")

    def __init__(self, is_guessing: bool, now_ns: int) -> None:
        self.is_guessing = is_guessing
        self.started_ns = now_ns
        self.is_closed = False
        self.num_arrived = 0
        self.has_guessed = False
        self._num_ended = 0
        self._sum = 0.0

    def add_time(self, took_ns: int) -> None:
        """Adds the time that one of its requests took."""
        self._num_ended += 1
        self._sum += math.log(max(1, took_ns))

    def is_over(self, now_ns: int) -> bool:
        """Returns whether the next request belongs to another round."""
        return self.num_arrived >= _NUM_REQUESTS and now_ns >= self.started_ns + _MIN_ROUND_NS

    @property
    def mean(self) -> float | None:
        """The mean logarithm of its requests' times; None while one of them has not ended."""
        return self._sum / self._num_ended if self.is_closed and self._num_ended == self.num_arrived else None
