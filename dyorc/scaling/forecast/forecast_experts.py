"""Simple forecasts, each right for some traffic: levels of several memories, a trend, a season."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyorc.scaling.forecast import season
from dyorc.scaling.forecast.arrival_history import ArrivalHistory

_HALF_LIVES = (4.0, 20.0, 120.0, 600.0)
"""Of the levels, in bins."""
_TREND_DECAYS = (0.5 ** (1 / 8), 0.5 ** (1 / 30))
"""How slowly the trend's level, and its slope, follow."""
_DAMPING = 0.97
"""What is left of a trend a bin later."""
_MAX_RATIO = 3.0
"""This cycle is taken to be at most so many times as busy as the last ones."""
NUM_EXPERTS = len(_HALF_LIVES) + 3


class ForecastExperts:
    """Foresee the number of arrivals from now on; `Mixture` weighs them."""

    def __init__(self) -> None:
        self._decays = 0.5 ** (1 / np.array(_HALF_LIVES))
        self._sums = np.zeros(len(_HALF_LIVES))
        self._weights = np.zeros(len(_HALF_LIVES))
        self._level = 0.0
        self._slope = 0.0
        self._num_seen = 0

    def add(self, count: float) -> None:
        """Takes in the next bin."""
        self._sums = self._sums * self._decays + count
        self._weights = self._weights * self._decays + 1
        if not self._num_seen:
            self._level = count
        follow, turn = 1 - _TREND_DECAYS[0], 1 - _TREND_DECAYS[1]
        expected = self._level + _DAMPING * self._slope
        before, self._level = self._level, expected + follow * (count - expected)
        self._slope = _DAMPING * self._slope + turn * (self._level - before - _DAMPING * self._slope)
        self._num_seen += 1

    def foresee(self, horizons: NDArray[np.float64], history: ArrivalHistory, period: float | None) -> NDArray[np.float64]:
        """Returns what each expert expects within each horizon, in bins from now: an array [horizon, expert].

        The last two know the season; without one, they repeat a level.
        """
        levels = self._sums / np.maximum(self._weights, 1.0)
        expected = np.empty((len(horizons), NUM_EXPERTS))
        expected[:, : len(levels)] = np.outer(horizons, levels)
        expected[:, len(levels)] = np.maximum(self._level * horizons + self._slope * _slope_sum(horizons), 0.0)
        expected[:, -2:] = expected[:, 2:3]
        if period is not None:
            self._foresee_season(expected, horizons, history, period)
        return expected

    def _foresee_season(
        self, expected: NDArray[np.float64], horizons: NDArray[np.float64], history: ArrivalHistory, period: float
    ) -> None:
        counts = season.ahead(history, period, horizons)
        if counts is not None:
            ratio = season.compare(history, period, max(period / 8, 4.0))
            expected[:, -2] = counts
            expected[:, -1] = counts * min(max(ratio, 1 / _MAX_RATIO), _MAX_RATIO)

    def idle(self, num_bins: int) -> None:
        """Takes in bins without arrivals."""
        fade = self._decays**num_bins
        self._sums = self._sums * fade
        self._weights = self._weights * fade + (1 - fade) / (1 - self._decays)
        self._level = self._slope = 0.0

    def to_state(self) -> dict[str, Any]:
        """Returns what was learned."""
        return {"sums": self._sums.tolist(), "weights": self._weights.tolist(), "trend": [self._level, self._slope]}

    def restore(self, state: Mapping[str, Any], num_away: int) -> None:
        """Takes in what was exported. Levels keep their rates and lose weight with the time away."""
        fade = self._decays**num_away
        self._sums = np.array(state["sums"], dtype=float) * fade
        self._weights = np.array(state["weights"], dtype=float) * fade
        self._level = float(state["trend"][0])
        self._num_seen = 1


def _slope_sum(horizons: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns what a damped slope of 1 adds to the sum over each horizon: sum over i of (d + ... + d^i)."""
    ratio = _DAMPING / (1 - _DAMPING)
    return ratio * (horizons - _DAMPING * (1 - _DAMPING**horizons) / (1 - _DAMPING))
