"""The forecast of one workflow's arrivals.

Source: weighting of experts by discounted past errors as in Herbster and Warmuth, Machine Learning 32 (1998), with weights by
power as in Bates and Granger, OR 20 (1969); damped trends: Gardner and McKenzie, Management Science 31 (1985).
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from dyorc.scaling.counts import NOTHING, Count
from dyorc.scaling.forecast.arrival_history import FACTOR, LENGTH, NUM_WIDTHS, ArrivalHistory
from dyorc.scaling.forecast.forecast_experts import NUM_EXPERTS, ForecastExperts
from dyorc.scaling.forecast.mixture import HORIZONS, Mixture
from dyorc.scaling.forecast.season import detect

_DETECT_EVERY = 128
"""Bins after which a period is looked for again."""
_MAX_GAP = 128
_MAX_KNOWN_GAP = 4 * LENGTH
"""Bins: beyond that, the machine slept, or the clock is broken."""
_GRID_BINS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 256.0, 512.0, 1024.0)
"""Horizons that are foreseen once for each bin; all others lie between them."""
_GRID = np.array(_GRID_BINS)
_GRID_OF_HORIZONS = np.searchsorted(_GRID, HORIZONS)
_MAX_BINS = FACTOR ** (NUM_WIDTHS - 1) * LENGTH


class ArrivalForecast:
    """Counts arrivals in bins, and foresees how many come within a window.

    Cost: 0.1 us for an arrival, 0.1 ms for each bin, 3 us for a window.
    """

    def __init__(self, now_ns: int, bin_s: float = 0.5, season_s: float | None = None) -> None:
        """
        Args:
            season_s: Known period of the traffic; None looks for one.
        """
        self._bin_ns = int(bin_s * 1e9)
        self._end_ns = now_ns + self._bin_ns
        self._num_new = 0
        self._history = ArrivalHistory()
        self._experts = ForecastExperts()
        self._mixture = Mixture(NUM_EXPERTS)
        self._season_bins = season_s / bin_s if season_s else None
        self._period = self._season_bins
        self._until_detect = _DETECT_EVERY
        self._foresee()

    @property
    def season_s(self) -> float | None:
        """The period in use."""
        return None if self._period is None else self._period * self._bin_ns / 1e9

    def arrived(self, now_ns: int) -> None:
        """Counts an arrival."""
        if now_ns >= self._end_ns:
            self.advance(now_ns)
        self._num_new += 1

    def advance(self, now_ns: int) -> None:
        """Takes in the bins that have ended. A clock that goes back changes nothing."""
        passed = (now_ns - self._end_ns) // self._bin_ns + 1
        if passed <= 0:
            return
        self._take(self._num_new)
        if passed <= _MAX_GAP:
            for _ in range(passed - 1):
                self._take(0)
        else:
            self._leave_out(passed - 1)
        self._num_new = 0
        self._end_ns += passed * self._bin_ns

    def within(self, start_s: float, end_s: float) -> Count:
        """Returns how many arrive in a window, from now in seconds."""
        start, end = (max(at_s, 0.0) * 1e9 / self._bin_ns for at_s in (start_s, end_s))
        if end <= start:
            return NOTHING
        row = self._mixture.row(end)
        means = self._means[row]
        mean = max(_within(means, end) - _within(means, start), 0.0)
        return Count(mean, mean * (1 + self._excess[row] * (end - start)))

    def rate_per_s(self, horizon_s: float) -> float:
        """Returns arrivals per second within a horizon, on average."""
        return self.within(0.0, horizon_s).mean / horizon_s

    def _take(self, count: int) -> None:
        self._history.add(count)
        self._experts.add(count)
        self._mixture.add(count)
        self._until_detect -= 1
        if self._until_detect <= 0 and self._season_bins is None:
            self._until_detect = _DETECT_EVERY
            self._look_for_season()
        self._foresee()

    def _foresee(self) -> None:
        expected = self._experts.foresee(_GRID, self._history, self._period)
        self._mixture.expect(expected[_GRID_OF_HORIZONS])
        self._means: list[list[float]] = (self._mixture.weights @ expected.T).tolist()
        self._excess: list[float] = ((np.maximum(self._mixture.dispersion, 1.0) - 1.0) / HORIZONS).tolist()

    def _leave_out(self, num_bins: int) -> None:
        """Passes over a long time without updates: no request came or, if it is very long, that is unknown."""
        if num_bins <= _MAX_KNOWN_GAP:
            self._experts.idle(num_bins)
            for _ in range(num_bins):
                self._history.add(0)
        else:
            num_bins = min(num_bins, _MAX_BINS)
            self._history = ArrivalHistory.from_state(self._history.to_state(), num_bins)
            self._experts.restore(self._experts.to_state(), num_bins)
        self._mixture.forget()
        self._foresee()

    def _look_for_season(self) -> None:
        season = detect(self._history)
        period = None if season is None else season.period
        is_new = period is not None and (self._period is None or abs(period / self._period - 1) > 0.1)
        self._period = period
        if is_new:
            self._mixture.doubt(-1)
            self._mixture.doubt(-2)

    def to_state(self) -> dict[str, Any]:
        """Returns what was learned, as plain values. The bin that has begun is not part of it."""
        return {
            "bin_s": self._bin_ns / 1e9,
            "period": self._period,
            "history": self._history.to_state(),
            "experts": self._experts.to_state(),
            "mixture": self._mixture.to_state(),
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], now_ns: int, bin_s: float = 0.5, season_s: float | None = None, away_s: float = 0.0
    ) -> "ArrivalForecast":
        """Returns the forecast as it was exported, `away_s` later. Bins of another length are of no use: it begins anew."""
        forecast = cls(now_ns, bin_s, season_s)
        if state.get("bin_s") != bin_s:
            return forecast
        num_away = min(int(max(away_s, 0.0) / bin_s), _MAX_BINS)
        forecast._history = ArrivalHistory.from_state(state["history"], num_away)
        forecast._experts.restore(state["experts"], num_away)
        forecast._mixture.restore(state["mixture"])
        forecast._period = forecast._season_bins or state["period"]
        forecast._foresee()
        return forecast


def _within(means: list[float], horizon: float) -> float:
    """Returns the expected number within a horizon, interpolated; beyond the last one it grows as before."""
    at = min(bisect_right(_GRID_BINS, horizon), len(_GRID_BINS) - 1)
    low, high = _GRID_BINS[at - 1], _GRID_BINS[at]
    return means[at - 1] + (means[at] - means[at - 1]) * (horizon - low) / (high - low)
