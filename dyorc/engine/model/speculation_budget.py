"""What is spent on guesses, and how much may be."""

from dyorc.config import SpeculationConfig


class Bet:
    """Device time spent on a call before it was certain.

    Attributes:
        probability: Of being needed.
        saved_s: How much sooner its result is expected thanks to the bet, in seconds.
        share_s: Its share of its batch's expected time, in seconds.
        price_s: How much longer others are expected to wait in all if it was for nothing, in seconds.
        slows_s: How much longer what runs beside it is expected to take in all, right or wrong, in seconds.
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
