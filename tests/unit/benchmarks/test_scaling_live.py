"""The benchmark of scaling: its load, and the figures that it makes of what servers say."""

from itertools import pairwise

import pytest

from benchmarks.focused.scaling_live.traffic import OnOff
from benchmarks.focused.scaling_live.watch import (
    Sample,
    changes,
    outside,
    read_dyorc,
    read_ray_serve,
    replica_seconds,
    wanted_courses,
    warm_courses,
)


def sample(at_s: float, *, warm: int = 0, parked: int = 0, wanted: int = 0) -> Sample:
    return Sample(at_s, {"guard": {"warm": warm, "parked": parked}}, {"guard": wanted})


def test_the_load_goes_on_and_off_once_in_a_cycle() -> None:
    times_s = [request.time_s for request in OnOff(duration_s=600.0, cycle_s=15.0, rate_rps=8.0).draw()]
    pauses = sum(after - before > 3.0 for before, after in pairwise(times_s))
    assert 600 / 15 * 0.7 < pauses < 600 / 15 * 1.3
    assert max(times_s) <= 600.0
    assert len(times_s) == pytest.approx(8.0 * 600.0, rel=0.1)


def test_replica_seconds_by_state_within_the_loads_time() -> None:
    samples = [sample(10.0, parked=2), sample(11.0, warm=1, parked=1), sample(13.0, warm=2), sample(20.0)]
    assert replica_seconds(samples, 4.0) == {"warm_s": 2.0, "parked_s": 4.0}


def test_each_replica_that_comes_or_goes_is_a_change() -> None:
    samples = [sample(0.0), sample(1.0, warm=2), sample(2.0, warm=1), sample(3.0, warm=2)]
    assert changes(warm_courses(samples)) == (3, 1)


def test_wishes_and_processes_outside_the_bounds_count() -> None:
    within = [sample(0.0, warm=1, parked=1, wanted=2)]
    assert outside(within, 0, 2) == 0
    assert outside([*within, sample(1.0, warm=2, parked=1, wanted=2), sample(2.0, wanted=3)], 0, 2) == 2
    assert outside(within, 3, 4) == 1


def test_both_servers_answers_are_read() -> None:
    about = {"num_warm": 1, "num_warming": 2, "num_parked": 3, "num_starting": 4, "num_warm_wanted": 5}
    counts, wanted = read_dyorc({"programs": {"guard": about}})
    assert counts == {"guard": {"warm": 1, "warming": 2, "parked": 3, "starting": 4}}
    assert wanted == {"guard": 5}
    counts, wanted = read_ray_serve({"guard": {"RUNNING": 1, "STOPPING": 2}})
    assert counts == {"guard": {"warm": 1, "stopping": 2}}
    assert wanted_courses([Sample(0.0, counts, wanted)]) == {}
