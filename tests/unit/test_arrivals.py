"""Arrival processes keep their rate and their shape."""

from pathlib import Path

import numpy as np
import pytest

from dyorc.errors import InvalidInputError
from dyorc.traffic.arrivals import Arrivals, Constant, Gamma, Poisson, Ramp, Trace


def gaps_s(arrivals: Arrivals, num_requests: int = 20_000, rate_rps: float = 50.0) -> np.ndarray:
    times_ns = arrivals.times_ns(num_requests, rate_rps, np.random.default_rng(3))
    assert times_ns.dtype == np.int64
    assert len(times_ns) == num_requests
    return np.diff(times_ns) / 1e9


@pytest.mark.parametrize(("arrivals", "cv"), [(Poisson(), 1.0), (Gamma(cv=4.0), 4.0), (Gamma(cv=0.5), 0.5), (Constant(), 0.0)])
def test_rate_and_variation(arrivals: Arrivals, cv: float) -> None:
    gaps = gaps_s(arrivals)

    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1, abs=1e-6)


def test_a_trace_is_stretched_to_the_rate(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("100.0\n100.5\n100.5\n102.0\n")
    trace = Trace.read(path)

    assert trace.rate_rps == 1.5
    assert trace.times_ns(4, 1.5, np.random.default_rng(0)).tolist() == [0, 500_000_000, 500_000_000, 2_000_000_000]
    assert trace.times_ns(3, 3.0, np.random.default_rng(0)).tolist() == [0, 250_000_000, 250_000_000]
    with pytest.raises(InvalidInputError, match="has 4 arrivals, 5"):
        trace.times_ns(5, 1.0, np.random.default_rng(0))


@pytest.mark.parametrize("text", ["", "1.0\n", "2.0\n1.0\n", "1.0\n1.0\n", "1.0\nsoon\n", "1.0\nnan\n", "1.0\ninf\n"])
def test_the_error_names_a_bad_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)

    with pytest.raises(InvalidInputError, match=r"trace\.txt"):
        Trace.read(path)


@pytest.mark.parametrize("start_ratio", [0.0, 0.5, 1.0])
def test_a_ramp_grows_evenly(start_ratio: float) -> None:
    times_s = Ramp(start_ratio).times_ns(40_000, 100.0, np.random.default_rng(3)) / 1e9
    counts, _ = np.histogram(times_s, np.linspace(0, 400, 5))
    first, slope = start_ratio, 2 * (1 - start_ratio)
    expected = [10_000 * (first + slope * (quarter + 0.5) / 4) for quarter in range(4)]

    assert np.all(np.diff(times_s) >= 0)
    assert counts == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("start_ratio", [-0.1, 1.1, float("nan")])
def test_a_ramp_that_falls_is_refused(start_ratio: float) -> None:
    with pytest.raises(InvalidInputError, match="expected 0 to 1"):
        Ramp(start_ratio)
