"""Weighs forecasts by how wrong they have been lately, and says how wrong their mean is."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

HORIZONS = np.array([1.0, 4.0, 16.0, 64.0])
"""In bins. Each has its own weights: what is right for the next second is wrong for the next minute."""
_BOUNDARIES = (2.0, 8.0, 32.0)
_LONGEST = int(HORIZONS[-1])
_POWER = 3.0
_NOISE = 0.8
"""An expert's weight is its squared error to minus this power, after this fraction of the best one's error is subtracted: most of
that is chance, which none foresees."""
_NUM_FIRST = 2
"""Bins after which forecasts begin to be judged."""
_LOSS_DECAYS = 0.5 ** (1 / np.maximum(40.0, 2 * HORIZONS))
_SPREAD_DECAYS = 0.5 ** (1 / np.maximum(120.0, 4 * HORIZONS))
_MIN_MEAN = 0.5
"""An error is compared with at least this expected number."""
_FIRST_DISPERSION = 2.0


class Mixture:
    """Remembers what experts expected, and judges them when it has come.

    Attributes:
        weights: Of the experts, for each of `HORIZONS`; each row adds up to 1.
        dispersion: Mean squared error of the weighted mean, in units of the mean, for each of `HORIZONS`: 1 is Poisson.
    """

    def __init__(self, num_experts: int) -> None:
        rows = len(HORIZONS)
        self.weights = np.full((rows, num_experts), 1 / num_experts)
        self.dispersion = np.full(rows, _FIRST_DISPERSION)
        self._losses = np.zeros((rows, num_experts))
        self._expected = np.zeros((_LONGEST + 1, rows, num_experts))
        self._means = np.zeros((_LONGEST + 1, rows))
        self._totals = np.zeros(_LONGEST + 1)
        self._num_bins = 0

    def expect(self, expected: NDArray[np.float64]) -> None:
        """Takes note of what the experts expect from now on within each of `HORIZONS`: an array [horizon, expert]."""
        at = self._num_bins % (_LONGEST + 1)
        self._expected[at] = expected
        self._means[at] = (self.weights * expected).sum(axis=1)

    def forget(self) -> None:
        """Drops forecasts that are not judged yet: bins are left out."""
        self._num_bins = 0

    def add(self, count: float) -> None:
        """Takes in the next bin, and judges the forecasts that end with it."""
        total = self._totals[self._num_bins % (_LONGEST + 1)] + count
        self._num_bins += 1
        self._totals[self._num_bins % (_LONGEST + 1)] = total
        rows = np.flatnonzero(self._num_bins - HORIZONS >= _NUM_FIRST)
        if not len(rows):
            return
        made = (self._num_bins - HORIZONS[rows].astype(int)) % (_LONGEST + 1)
        came = total - self._totals[made]
        self._judge(rows, self._expected[made, rows], self._means[made, rows], came)

    def _judge(
        self, rows: NDArray[np.intp], expected: NDArray[np.float64], means: NDArray[np.float64], came: NDArray[np.float64]
    ) -> None:
        decays = _LOSS_DECAYS[rows, None]
        self._losses[rows] = decays * self._losses[rows] + (1 - decays) * (expected - came[:, None]) ** 2
        losses = self._losses[rows]
        excess = losses - _NOISE * losses.min(axis=1, keepdims=True) + 1e-3 * np.maximum(means, _MIN_MEAN)[:, None]
        scores = (excess / excess.min(axis=1, keepdims=True)) ** -_POWER
        self.weights[rows] = scores / scores.sum(axis=1, keepdims=True)
        spread = (came - means) ** 2 / np.maximum(means, _MIN_MEAN)
        self.dispersion[rows] += (1 - _SPREAD_DECAYS[rows]) * (spread - self.dispersion[rows])

    def doubt(self, expert: int) -> None:
        """Judges an expert anew: it foresees by something else now."""
        self._losses[:, expert] = self._losses.max(axis=1)

    def row(self, horizon: float) -> int:
        """Returns which of `HORIZONS` is next to a horizon, as a factor."""
        return bisect_left(_BOUNDARIES, horizon)

    def to_state(self) -> dict[str, Any]:
        """Returns what was learned."""
        return {"losses": self._losses.tolist(), "weights": self.weights.tolist(), "dispersion": self.dispersion.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes in what was exported."""
        self._losses = np.array(state["losses"], dtype=float).reshape(self._losses.shape)
        self.weights = np.array(state["weights"], dtype=float).reshape(self.weights.shape)
        self.dispersion = np.array(state["dispersion"], dtype=float).reshape(self.dispersion.shape)
