"""Quantiles of numbers that are not known yet."""

import math

import numpy as np
import pytest
from scipy import stats

from dyorc.scaling.counts import Count


@pytest.mark.parametrize("mean", [0.05, 0.7, 3.0, 25.0])
@pytest.mark.parametrize("ratio", [1.0, 1.5, 6.0])
def test_quantiles_are_those_of_the_negative_binomial_and_poisson_distributions(mean: float, ratio: float) -> None:
    exact = stats.poisson(mean) if ratio == 1 else stats.nbinom(mean / (ratio - 1), 1 / ratio)
    count = Count(mean, ratio * mean)
    for probability in (0.5, 0.95, 0.99):
        assert count.quantile(probability) == exact.ppf(probability)
    assert count.p_any == pytest.approx(1 - exact.pmf(0), abs=1e-9)


@pytest.mark.parametrize(("mean", "ratio"), [(100.0, 1.0), (100.0, 8.0), (5000.0, 3.0), (40.0, 1.0), (40.0, 6.0)])
def test_large_numbers_are_close(mean: float, ratio: float) -> None:
    exact = stats.poisson(mean) if ratio == 1 else stats.nbinom(mean / (ratio - 1), 1 / ratio)
    for probability in (0.5, 0.95, 0.99):
        assert Count(mean, ratio * mean).quantile(probability) == pytest.approx(exact.ppf(probability), rel=0.03)


def test_a_certain_number_is_certain() -> None:
    assert Count(1.0, 0.0).p_any == pytest.approx(1.0, abs=1e-4)
    assert Count(8.0, 0.0).quantile(0.95) == 8


def test_a_sum_of_random_things_has_their_mean_and_spread() -> None:
    rng = np.random.default_rng(0)
    drawn = [rng.binomial(3, 0.4, rng.poisson(5.0)).sum() for _ in range(20_000)]
    count = Count(5.0, 5.0).each(1.2, 3 * 0.4 * 0.6 + 1.2**2)
    assert count.mean == pytest.approx(np.mean(drawn), rel=0.02)
    assert count.variance == pytest.approx(np.var(drawn), rel=0.05)


def test_nothing_is_nothing() -> None:
    assert Count().quantile(0.99) == 0
    assert Count().p_any == 0
    assert math.isfinite(Count(1e-12, 5.0).quantile(0.99))
