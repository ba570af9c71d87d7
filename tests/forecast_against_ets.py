"""Compares the forecast of arrivals with exponential smoothing by statsmodels.

For each trace, both foresee at each of many moments how many requests arrive within a horizon. Printed: the mean pinball loss of
the 95 % quantile, and how often what came lay below it. ETS gets the last 500 bins, is fitted anew every 102 bins, and simulates.
statsmodels is no dependency: ``pip install statsmodels``, then ``python -m tests.forecast_against_ets``.
"""

import time
import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dyorc.scaling.forecast.arrival_forecast import ArrivalForecast

_BIN_S = 0.5
_PROBABILITY = 0.95
_NUM_BINS = 1600
_START = 600
_EVERY = 17
_FIT_EVERY = 6 * _EVERY
_WINDOW = 500


def traces() -> Mapping[str, tuple[NDArray[np.int64], int | None]]:
    """Returns counts per bin of each trace, and its period in bins if it has one."""
    rng = np.random.default_rng(7)
    t = np.arange(_NUM_BINS) * _BIN_S
    flash = np.where((t > 500) & (t < 530), 100.0, 5.0)
    rates = {
        "constant 20/s": (np.full(_NUM_BINS, 20.0), None),
        "constant 0.5/s": (np.full(_NUM_BINS, 0.5), None),
        "sine, period 100 s": (20 + 15 * np.sin(t / 100 * 2 * np.pi), 200),
        "on/off, period 60 s": (np.where(t % 60 < 20, 50.0, 0.0), 120),
        "irregular on/off": (np.repeat(rng.random(_NUM_BINS // 20) < 0.3, 20) * 60.0, None),
        "flash crowd": (flash, None),
        "ramp": (2 + 0.05 * t, None),
    }
    return {name: (rng.poisson(rate * _BIN_S), period) for name, (rate, period) in rates.items()}


def ours(counts: NDArray[np.int64], horizon: int) -> dict[int, float]:
    """Returns the quantile at each moment."""
    forecast = ArrivalForecast(0, _BIN_S)
    found: dict[int, float] = {}
    for number, count in enumerate(counts):
        for _ in range(count):
            forecast.arrived(int(number * _BIN_S * 1e9))
        forecast.advance(int((number + 1) * _BIN_S * 1e9))
        if number >= _START and number % _EVERY == _START % _EVERY:
            found[number] = forecast.within(0.0, horizon * _BIN_S).quantile(_PROBABILITY)
    return found


def ets(counts: NDArray[np.int64], horizon: int, period: int | None) -> dict[int, float]:
    """Returns the quantile at each moment, as simulated by a fitted additive ETS with damped trend; the period is given to it."""
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    found: dict[int, float] = {}
    fitted = None
    for number in range(_START, len(counts), _EVERY):
        past = counts[max(number + 1 - _WINDOW, 0) : number + 1].astype(float)
        with warnings.catch_warnings(action="ignore"):
            season = {"seasonal": "add", "seasonal_periods": period, "initialization_method": "heuristic"} if period else {}
            model = ETSModel(past, error="add", trend="add", damped_trend=True, **season)
            if fitted is None or (number - _START) % _FIT_EVERY == 0:
                fitted = model.fit(disp=False, maxiter=50).params
            drawn = model.smooth(fitted).simulate(horizon, anchor="end", repetitions=200, rng=np.random.default_rng(number))
        found[number] = max(float(np.quantile(np.asarray(drawn).reshape(horizon, -1).sum(axis=0), _PROBABILITY)), 0.0)
    return found


def judge(counts: NDArray[np.int64], quantiles: Mapping[int, float], horizon: int) -> str:
    """Returns the pinball loss and the coverage."""
    losses: list[float] = []
    covered: list[bool] = []
    for number, quantile in quantiles.items():
        if number + horizon < len(counts):
            over = float(counts[number + 1 : number + 1 + horizon].sum()) - quantile
            losses.append(max(_PROBABILITY * over, (_PROBABILITY - 1) * over))
            covered.append(over <= 0)
    return f"{np.mean(losses):6.2f} ({np.mean(covered):4.0%})"


def main() -> None:
    """Prints a table."""
    print("| trace | horizon | DyOrc | ETS | DyOrc, s | ETS, s |\n|---|---|---|---|---|---|")
    for name, (counts, period) in traces().items():
        for horizon in (6, 20):
            started = time.process_time()
            our_quantiles = ours(counts, horizon)
            between = time.process_time()
            their_quantiles = ets(counts, horizon, period)
            ended = time.process_time()
            losses = f"{judge(counts, our_quantiles, horizon)} | {judge(counts, their_quantiles, horizon)}"
            print(f"| {name} | {horizon * _BIN_S:g} s | {losses} | {between - started:.1f} | {ended - between:.1f} |", flush=True)


if __name__ == "__main__":
    main()
