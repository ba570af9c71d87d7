"""Plans: the same whatever the number of workers, at the rates that were asked for, and bounded."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from dyorc.errors import InvalidInputError
from loadgen.load import Load
from loadgen.schedule import plan


@pytest.mark.parametrize("arrivals", ["poisson", "gamma", "constant", "ramp"])
def test_workers_share_one_schedule(arrivals: str) -> None:
    load = Load(arrivals=arrivals, rate_rps=300, start_rps=100, duration_s=4, seed=7)
    whole = plan(load).times_ns
    shares = [plan(msgspec.structs.replace(load, num_workers=3)).share(worker, 3) for worker in range(3)]

    assert np.array_equal(np.sort(np.concatenate([times for _, times in shares])), whole)
    assert sorted(np.concatenate([numbers for numbers, _ in shares]).tolist()) == list(range(len(whole)))
    assert all(np.array_equal(whole[numbers], times) for numbers, times in shares)


@pytest.mark.parametrize(("arrivals", "rel"), [("poisson", 0.05), ("gamma", 0.2), ("constant", 0.001)])
def test_the_rate_holds_until_the_end(arrivals: str, rel: float) -> None:
    schedule = plan(Load(arrivals=arrivals, rate_rps=500, warm_up_s=2, duration_s=38, seed=1))

    assert (schedule.warm_up_ns, schedule.end_ns, schedule.duration_s) == (2_000_000_000, 40_000_000_000, 38)
    assert len(schedule.times_ns) == pytest.approx(500 * 40, rel=rel)
    assert np.all(np.diff(schedule.times_ns) >= 0)
    assert 39.0 < schedule.times_ns[-1] / 1e9 < 40.0


def test_different_seeds_differ() -> None:
    one, other = (plan(Load(rate_rps=100, seed=seed)).times_ns for seed in (1, 2))

    assert len(one) != len(other) or np.any(one != other)


def test_a_ramp_grows_evenly_after_the_warm_up() -> None:
    schedule = plan(Load(arrivals="ramp", start_rps=200, rate_rps=1000, warm_up_s=10, duration_s=40, seed=3))
    counts, _ = np.histogram(schedule.times_ns / 1e9, [0, 10, 20, 30, 40, 50])

    assert counts == pytest.approx([2000, 3000, 5000, 7000, 9000], rel=0.06)


def test_a_ramp_may_start_at_zero() -> None:
    schedule = plan(Load(arrivals="ramp", rate_rps=1000, warm_up_s=1, duration_s=20, seed=3))
    counts, _ = np.histogram(schedule.times_ns / 1e9 - 1, [-1, 0, 10, 20])

    assert counts == pytest.approx([0, 2500, 7500], rel=0.06)


def test_a_trace_ends_where_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("100.0\n100.5\n101.5\n102.0\n")
    load = Load(arrivals="trace", trace=str(path), warm_up_s=0.5, duration_s=60)

    assert plan(load).times_ns.tolist() == [0, 500_000_000, 1_500_000_000, 2_000_000_000]
    assert plan(load).duration_s == pytest.approx(1.5)
    assert plan(msgspec.structs.replace(load, duration_s=1.2)).times_ns.tolist() == [0, 500_000_000, 1_500_000_000]
    twice = plan(msgspec.structs.replace(load, rate_rps=3.0, warm_up_s=0.0))
    assert twice.times_ns.tolist() == [0, 250_000_000, 750_000_000, 1_000_000_000]
    with pytest.raises(ValueError, match=r"trace\.txt covers 2 s, expected more than the warm-up of 3 s"):
        plan(msgspec.structs.replace(load, warm_up_s=3.0))


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (Load(rate_rps=1e7, duration_s=10), "110,000,000 requests, expected at most 50,000,000"),
        (Load(rate_rps=0), "rate_rps is 0, expected requests per second"),
        (Load(rate_rps=float("nan")), "rate_rps is nan"),
        (Load(rate_rps=1, duration_s=0), "duration_s is 0"),
        (Load(rate_rps=1, duration_s=float("inf")), "duration_s is inf"),
        (Load(rate_rps=1, arrivals="now"), "arrivals is 'now', expected poisson, gamma"),
        (Load(rate_rps=1, arrivals="gamma", cv=0), "cv is 0"),
        (Load(rate_rps=1, arrivals="ramp", start_rps=2), "a ramp from 2 to 1 requests per second"),
    ],
)
def test_errors_name_what_cannot_be_planned(load: Load, text: str) -> None:
    with pytest.raises(ValueError, match=text.replace("(", r"\(")):
        plan(load)


def test_the_error_names_a_bad_trace(tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_text("soon\n")

    with pytest.raises(InvalidInputError, match=r"trace\.txt"):
        plan(Load(arrivals="trace", trace=str(tmp_path / "trace.txt")))
