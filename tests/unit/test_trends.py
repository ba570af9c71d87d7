"""Which series count as flat."""

import math
import random

import pytest

from tests.soak.trends import Trend, Verdict, trend_of

_HOUR_S, _CYCLE_S = 3600, 180


def trend(slope: float, *, noise: float = 1.0, swing: float = 0.0, seconds: int = _HOUR_S, seed: int = 1) -> Trend:
    """Returns the trend of a series of 100, measured each 10 s, that grows by so much in an hour and swings within a cycle."""
    chance = random.Random(seed)
    times_s = range(0, seconds, 10)
    sizes = [
        100 + slope * time_s / 3600 + swing * math.sin(2 * math.pi * time_s / _CYCLE_S) + chance.gauss(0, noise)
        for time_s in times_s
    ]
    return trend_of(times_s, sizes, cycle_s=_CYCLE_S, warm_up_s=seconds / 3, max_ratio=0.05, min_bound=0.0)


def test_noise_and_what_repeats_are_flat() -> None:
    assert trend(0).verdict is Verdict.FLAT
    assert trend(0, swing=50).verdict is Verdict.FLAT


def test_what_grows_by_more_than_the_bound_grows() -> None:
    growth = trend(20, swing=50)
    assert growth.verdict is Verdict.GROWS
    assert growth.low < 20 < growth.high


def test_what_shrinks_is_flat() -> None:
    assert trend(-20).verdict is Verdict.FLAT


def test_a_run_that_is_too_noisy_decides_nothing() -> None:
    assert trend(4, noise=20).verdict is Verdict.UNDECIDED


def test_the_interval_holds_the_slope_as_often_as_it_says() -> None:
    num_held = sum((course := trend(3, swing=20, seed=seed)).low <= 3 <= course.high for seed in range(100))
    assert num_held >= 90


def test_what_happens_in_the_warm_up_does_not_count() -> None:
    times_s = range(0, 3600, 10)
    sizes = [min(100.0, time_s / 6) for time_s in times_s]
    course = trend_of(times_s, sizes, cycle_s=_CYCLE_S, warm_up_s=1200, max_ratio=0.01, min_bound=0.0)
    assert (course.slope, course.verdict) == (0, Verdict.FLAT)


def test_too_few_cycles_are_refused() -> None:
    with pytest.raises(ValueError, match="2 cycles of 180 s have measurements, expected at least 5"):
        trend(0, seconds=540)
