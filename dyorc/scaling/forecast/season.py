"""Finds out whether arrivals repeat, and how often."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyorc.scaling.forecast.arrival_history import ArrivalHistory

_MIN_LAG = 8
"""Bins of a period at least; a finer one is seen at a finer width."""
_MIN_CYCLES = 2.0
_MIN_STRENGTH = 0.3
"""Autocorrelation from which on arrivals count as periodic."""
_CYCLE_WEIGHTS = (0.5, 0.3, 0.2)
"""What the last cycles count for in a forecast, the latest first."""


@dataclass(frozen=True, slots=True)
class Season:
    """A period of the arrivals.

    Attributes:
        period: In fine bins.
        strength: Autocorrelation at this period, at most 1.
    """

    period: float
    strength: float


def detect(history: ArrivalHistory) -> Season | None:
    """Returns the clearest period in the history, if there is one.

    Cost: a few Fourier transforms of 2048 numbers, 0.3 ms in all.
    """
    seasons = [season for ring in history.rings if (season := _detect(ring.values, ring.width)) is not None]
    return max(seasons, key=lambda season: season.strength, default=None)


def _detect(values: NDArray[np.float64], width: int) -> Season | None:
    known = values >= 0
    if known.sum() < _MIN_CYCLES * _MIN_LAG * 2:
        return None
    mean = float(values[known].mean())
    correlation = _autocorrelation(np.where(known, values - mean, 0.0))
    longest = int(len(values) / _MIN_CYCLES)
    negative = np.flatnonzero(correlation[:longest] < 0)
    if not len(negative):
        return None
    first = max(int(negative[0]), _MIN_LAG)
    lags = np.arange(first + 1, longest - 1)
    is_peak = (correlation[lags] >= correlation[lags - 1]) & (correlation[lags] > correlation[lags + 1])
    peaks = lags[is_peak]
    if not len(peaks):
        return None
    heights = correlation[peaks]
    if heights.max() < max(_MIN_STRENGTH, 4 / np.sqrt(known.sum())):
        return None
    lag = int(peaks[np.flatnonzero(heights >= 0.9 * heights.max())[0]])  # the multiples of a period are as high as itself
    return Season((lag + _vertex(correlation[lag - 1 : lag + 2])) * width, float(correlation[lag]))


def _autocorrelation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns it for each lag, corrected for the terms that long lags lack."""
    size = len(values)
    spectrum = np.fft.rfft(values, 2 * size)
    products = np.fft.irfft(np.abs(spectrum) ** 2, 2 * size)[:size] / np.arange(size, 0, -1)
    return products / max(products[0], 1e-12)


def _vertex(three: NDArray[np.float64]) -> float:
    """Returns where between -1 and 1 the parabola through three equidistant points has its vertex."""
    bend = three[0] - 2 * three[1] + three[2]
    return float(np.clip(0.5 * (three[0] - three[2]) / bend, -1, 1)) if bend < 0 else 0.0


def ahead(history: ArrivalHistory, period: float, lengths: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Returns how many came at this phase in the last cycles, on average, over each length from now; all in fine bins."""
    cycles, rests = np.divmod(lengths, period)
    counts = _average(history, period, 0.0, np.append(rests, period))
    return None if counts is None else cycles * counts[-1] + counts[:-1]


def compare(history: ArrivalHistory, period: float, length: float) -> float:
    """Returns how many have come in the last bins for each one that came at this phase before; about 1 if that is not known."""
    came = history.since(length, np.array([length]))
    usual = _average(history, period, length, np.array([length]))
    return 1.0 if came is None or usual is None else float((came[0] + 1) / (usual[0] + 1))


def _average(history: ArrivalHistory, period: float, ago: float, lengths: NDArray[np.float64]) -> NDArray[np.float64] | None:
    weight, total = 0.0, np.zeros(len(lengths))
    for cycle, part in enumerate(_CYCLE_WEIGHTS, 1):
        counts = history.since(cycle * period + ago, lengths)
        if counts is not None:
            weight += part
            total += part * counts
    return total / weight if weight else None
