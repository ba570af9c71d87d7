"""How many arrivals are foreseen, and how surely."""

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from dyorc.scaling.forecast.arrival_forecast import ArrivalForecast

NS = 1_000_000_000
BIN_S = 0.5


class _Judged:
    """Forecasts of every bin beside what came: of the count within `horizon_s`."""

    def __init__(self, rates: NDArray[np.float64], horizon_s: float = 3.0, probability: float = 0.95, seed: int = 0) -> None:
        counts = np.random.default_rng(seed).poisson(rates * BIN_S)
        self.forecast = ArrivalForecast(0, BIN_S)
        means: list[float] = []
        bounds: list[float] = []
        for number, count in enumerate(counts):
            for _ in range(count):
                self.forecast.arrived(int(number * BIN_S * NS))
            self.forecast.advance(int((number + 1) * BIN_S * NS))
            within = self.forecast.within(0.0, horizon_s)
            means.append(within.mean)
            bounds.append(within.quantile(probability))
        ahead = int(horizon_s / BIN_S)
        self.came = np.convolve(counts, np.ones(ahead, int), "valid")[1:]
        self.means, self.bounds = np.array(means)[: len(self.came)], np.array(bounds)[: len(self.came)]

    def covered(self, start: int = 0) -> float:
        return float(np.mean(self.came[start:] <= self.bounds[start:]))

    def error(self, start: int = 0) -> float:
        return float(np.mean(np.abs(self.came - self.means)[start:]))


_T = np.arange(2400) * BIN_S


@pytest.mark.parametrize("rate", [0.2, 5.0, 100.0])
def test_a_constant_rate_is_found_and_its_quantile_holds(rate: float) -> None:
    judged = _Judged(np.full(2400, rate))
    assert judged.means[600:].mean() == pytest.approx(3 * rate, rel=0.1)
    assert 0.92 <= judged.covered(600) <= 0.99
    assert judged.bounds[600:].mean() < 3 * rate + 2.2 * np.sqrt(3 * rate) + 1


def test_a_trend_is_followed() -> None:
    judged = _Judged(5 + 0.1 * _T, horizon_s=16.0)
    late = slice(1200, None)
    assert judged.means[late].mean() == pytest.approx(judged.came[late].mean(), rel=0.03)


def test_a_season_is_found_and_foreseen() -> None:
    rates = np.where(_T % 60 < 20, 50.0, 0.0)
    judged = _Judged(rates)
    assert judged.forecast.season_s == pytest.approx(60, rel=0.01)
    level = _Judged(np.full(2400, 50.0 / 3))
    assert judged.error(1200) < 1.5 * level.error(1200)  # as if there were no steps at all
    onset = (_T[: len(judged.came)] % 60 == 59.0) & (np.arange(len(judged.came)) > 1200)
    assert judged.means[onset].mean() > 60  # in 3 s, 2 of them after the onset


def test_quantiles_widen_after_a_flash_and_narrow_again() -> None:
    rates = np.full(2400, 5.0)
    rates[1200:1220] = 300.0
    judged = _Judged(rates)
    before, after, later = (
        float(judged.bounds[span].mean()) for span in (slice(1000, 1190), slice(1225, 1245), slice(2000, 2390))
    )
    assert later < 1.5 * before < after / 2


def test_a_flash_is_noticed_within_two_bins() -> None:
    rates = np.full(1240, 5.0)
    rates[1200:] = 300.0
    judged = _Judged(rates)
    assert judged.bounds[1201] > 200  # one second of 300/s, after 15 in 3 s
    assert judged.means[1212] > 700


def test_irregular_bursts_make_wide_quantiles() -> None:
    is_on = np.random.default_rng(3).random(120) < 0.3
    judged = _Judged(np.repeat(is_on, 20) * 60.0)
    assert judged.forecast.season_s is None
    assert judged.covered(600) > 0.88
    assert float(np.mean(judged.bounds[600:])) > 1.5 * float(np.mean(judged.came[600:]))


def test_a_known_season_is_used_from_the_second_cycle() -> None:
    forecast = ArrivalForecast(0, BIN_S, season_s=600.0)
    for number in range(1200 + 10):
        if number % 1200 < 100:
            for _ in range(20):
                forecast.arrived(int(number * BIN_S * NS))
        forecast.advance(int((number + 1) * BIN_S * NS))
    assert forecast.season_s == 600.0
    assert forecast.within(0.0, 30.0).mean > 500


def test_state_survives_and_time_away_does_not_shift_the_season() -> None:
    rates = np.where(_T % 60 < 20, 50.0, 0.0)
    forecast = _Judged(rates).forecast  # 1200 s: at a cycle's start
    state = json.loads(json.dumps(forecast.to_state()))
    assert len(json.dumps(state)) < 60_000
    again = ArrivalForecast.from_state(state, 7 * NS, BIN_S)
    for end_s in (0.3, 3.0, 25.0, 70.0):
        assert again.within(0.0, end_s).mean == pytest.approx(forecast.within(0.0, end_s).mean, rel=0.02)
    away = ArrivalForecast.from_state(state, 7 * NS, BIN_S, away_s=30.0)
    assert away.within(0.0, 25.0).mean < 0.2 * away.within(25.0, 50.0).mean
    other = ArrivalForecast.from_state(state, 7 * NS, bin_s=1.0)
    assert other.within(0.0, 10.0).mean == 0


@pytest.mark.parametrize("jump_ns", [-(10**18), 0, 200 * NS, 3000 * NS, 10**7 * NS, 10**18])
def test_a_clock_that_jumps_does_no_harm(jump_ns: int) -> None:
    forecast = _Judged(np.full(400, 20.0)).forecast
    now_ns = 200 * NS
    forecast.arrived(now_ns + jump_ns)
    forecast.advance(now_ns + jump_ns)
    for _ in range(100):
        now_ns += NS // 10
        forecast.arrived(now_ns + max(jump_ns, 0))
    forecast.advance(now_ns + max(jump_ns, 0))
    within = forecast.within(0.0, 5.0)
    assert 0 <= within.mean < 500
    assert within.quantile(0.99) < 5000


def test_nothing_known_foresees_nothing() -> None:
    forecast = ArrivalForecast(0)
    assert forecast.within(0.0, 10.0).mean == 0
    assert forecast.within(-5.0, -1.0).mean == 0
    assert forecast.within(5.0, 1.0).mean == 0
