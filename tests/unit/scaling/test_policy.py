"""Whole decisions, in a small world with a virtual clock."""

from dataclasses import replace

import numpy as np
import pytest

from dyorc.config import BudgetConfig, ScalingConfig
from dyorc.scaling.model import Bounds, Cost, LeadTimes, ProgramLoad, ReplicaCounts, Speed
from dyorc.scaling.policy import PredictivePolicy
from dyorc.scaling.traffic import Traffic
from tests.unit.scaling.traces import Arrivals, along, poisson
from tests.unit.scaling.world import Kind, World, percentile

NS = 1_000_000_000


def _run(kinds: dict[str, Kind], arrivals: Arrivals, until_s: float, config: ScalingConfig | None = None) -> World:
    traffic = Traffic()
    world = World(kinds, traffic, PredictivePolicy(config or ScalingConfig(), traffic))
    world.run(sorted(arrivals), until_s)
    return world


@pytest.mark.parametrize("rate", [0.05, 5.0])
def test_nothing_changes_for_an_hour_of_constant_load(rate: float) -> None:
    times = poisson(rate, 0, 3600, np.random.default_rng(1))
    world = _run({"a": Kind()}, along(times, "a"), 3600)
    assert len(world.took_s) >= 0.99 * len(times)
    assert len([at_s for at_s, _ in world.changes if at_s > 60]) <= 4


def test_several_replicas_under_constant_load_change_rarely() -> None:
    rng = np.random.default_rng(2)
    slow = Kind(speed=Speed(0.2, 0.05, 8))
    world = _run({"a": slow}, along(poisson(30, 0, 900, rng), "a"), 900)
    late = [desired for at_s, desired in world.changes if at_s > 60]
    assert len(late) <= 20
    assert max(desired.num_warm for desired in late) - min(desired.num_warm for desired in late) <= 1
    assert percentile((took for number, took in world.took_s.items() if number > 1000), 0.99) < 2.0


def test_a_branch_is_warm_before_its_queue_exists() -> None:
    upstream = Kind(speed=Speed(4.0, 0.0, 8), bounds=Bounds(min_warm=1, max_replicas=4))
    branch = Kind(bounds=Bounds(min_warm=0, max_replicas=4, cold_delay_s=5.0, downscale_delay_s=5.0))
    lessons = along([10.0 * k for k in range(6)], "a", "b")
    world = _run({"a": upstream, "b": branch}, [*lessons, *along([400.0], "a", "b")], 450)
    assert world.took_s[6] < 4.1  # 3 s of start-up lie within the 4 s of its upstream
    before = [desired for at_s, desired in world.changes if desired.program == "b" and at_s < 399]
    assert before[-1].num_warm == 0


def test_a_call_of_a_cold_program_warms_one_at_once() -> None:
    world = _run({"a": Kind()}, along([100.123], "a"), 120)
    assert world.took_s[0] == pytest.approx(3.021, abs=0.01)


def test_idle_programs_are_parked_and_then_cold() -> None:
    kind = Kind(bounds=Bounds(min_warm=0, max_replicas=4, downscale_delay_s=10, cold_delay_s=60))
    world = _run({"a": kind}, along(poisson(5, 0, 30, np.random.default_rng(3)), "a"), 1500)
    warm = [(at_s, desired.num_warm, desired.num_parked) for at_s, desired in world.changes]
    parked_s = next(at_s for at_s, num_warm, _ in warm if at_s > 30 and not num_warm)
    assert 38 < parked_s < 90
    assert warm[-1][1:] == (0, 0)
    assert parked_s + 40 < warm[-1][0] < 1000


def test_slow_programs_have_replicas_for_their_peaks() -> None:
    """A batch takes 1.2 or 1.6 s; a call that waits for another whole batch takes more than 2.2 s."""
    kind = Kind(speed=Speed(0.8, 0.4, 2), bounds=Bounds(min_warm=0, max_replicas=8))
    world = _run({"a": kind}, along(poisson(0.9, 0, 1800, np.random.default_rng(7)), "a"), 1850)
    late = [took_s > 2.2 for number, took_s in world.took_s.items() if number > 60]
    assert np.mean(late) < 0.015


def test_a_flash_crowd_gets_replicas_and_they_go_again() -> None:
    rng = np.random.default_rng(4)
    kind = Kind(speed=Speed(0.1, 0.02, 8), bounds=Bounds(min_warm=1, max_replicas=12))
    crowd = along(poisson(1, 0, 120, rng), "a") + along(poisson(150, 120, 150, rng), "a") + along(poisson(1, 150, 400, rng), "a")
    world = _run({"a": kind}, crowd, 500)
    assert len(world.took_s) == len(crowd)
    most = max(desired.num_warm for _, desired in world.changes)
    assert 5 <= most <= 12
    first_s = next(at_s for at_s, desired in world.changes if at_s > 119 and desired.num_warm >= 3)
    assert first_s < 121.5
    assert world.programs["a"].want[0] <= 2


def test_a_drifting_branch_is_followed() -> None:
    rng = np.random.default_rng(5)
    times = poisson(40, 0, 300, rng)
    slow = Kind(speed=Speed(0.05, 0.05, 4))
    arrivals: Arrivals = [(at_s, "flow", ("a", "b" if rng.random() < 1 - at_s / 300 else "c")) for at_s in times]
    world = _run({"a": Kind(), "b": slow, "c": slow}, arrivals, 300)
    wants = {name: [(at_s, desired.num_warm) for at_s, desired in world.changes if desired.program == name] for name in "bc"}
    assert max(number for at_s, number in wants["b"] if at_s < 100) > wants["b"][-1][1]
    assert wants["c"][-1][1] > max(number for at_s, number in wants["c"] if at_s < 60)


def test_a_regular_onset_is_foreseen() -> None:
    rng = np.random.default_rng(6)
    times = [at_s for cycle in range(12) for at_s in poisson(20, 60 * cycle, 60 * cycle + 20, rng)]
    world = _run({"a": Kind()}, along(times, "a"), 720)
    late = [took for number, took in world.took_s.items() if times[number] > 360]
    assert percentile(late, 0.999) < 0.3  # nobody waits even for a parked replica
    assert world.held_s["a"] < 600


def _load(**changes: object) -> ProgramLoad:
    values: dict[str, object] = {
        "program": "a",
        "bounds": Bounds(min_warm=0, max_replicas=8),
        "cost": Cost(),
        "counts": ReplicaCounts(),
        "lead": LeadTimes(0.3, 3.0),
        "speed": Speed(0.1, 0.01, 8),
    }
    return ProgramLoad(**{**values, **changes})  # type: ignore[arg-type]


def test_a_fixed_number_is_unchanged_once() -> None:
    policy = PredictivePolicy(ScalingConfig(), Traffic())
    load = _load(bounds=Bounds(min_warm=3, max_replicas=3))
    assert [(desired.num_warm, desired.num_parked) for desired in policy.decide([load], 0)] == [(3, 0)]
    assert policy.decide([load], NS) == []


def test_an_override_beats_everything_but_bounds_and_budget() -> None:
    config = ScalingConfig(budget=BudgetConfig(max_cpus=4))
    policy = PredictivePolicy(config, Traffic())
    policy.decide([_load()], 0)
    policy.override("a", 3, 1)
    (desired,) = policy.decide([_load()], NS)
    assert (desired.num_warm, desired.num_parked) == (3, 1)
    assert "by hand" in desired.reason
    policy.override("a", 20, None)
    (desired,) = policy.decide([_load()], 2 * NS)
    assert desired.num_warm == 4  # the bound is 8
    assert "budget" in desired.reason
    policy.override("a", None, None)
    later = [policy.decide([_load()], at_s * NS) for at_s in range(3, 1000)]
    assert [all_desired[-1].num_warm for all_desired in later if all_desired][-1] == 0


def test_the_last_replica_may_have_a_delay_of_its_own() -> None:
    policy = PredictivePolicy(ScalingConfig(), Traffic())
    bounds = Bounds(min_warm=0, max_replicas=4, initial_warm=2, downscale_delay_s=5, to_zero_delay_s=60)
    all_desired = [
        (at_s, desired.num_warm) for at_s in range(100) for desired in policy.decide([_load(bounds=bounds)], at_s * NS)
    ]
    assert [number for _, number in all_desired[:1]] == [2]
    assert next(at_s for at_s, number in all_desired if number == 1) == 5
    assert next(at_s for at_s, number in all_desired if number == 0) == 60


def test_requests_are_urgent_only_where_they_can_change_something() -> None:
    traffic = Traffic()
    policy = PredictivePolicy(ScalingConfig(), traffic)
    load = _load(bounds=Bounds(min_warm=0, max_replicas=4, upscale_delay_s=30))
    policy.decide([load], 0)
    traffic.arrived(1, "flow", NS)
    traffic.called(1, "a", NS)
    assert traffic.is_urgent
    traffic.is_urgent = False
    policy.decide([replace(load, num_queued=1)], NS)  # wanted from now on, and delayed
    traffic.arrived(2, "flow", NS)
    traffic.called(2, "a", NS)
    assert not traffic.is_urgent


def test_more_only_after_the_delay() -> None:
    policy = PredictivePolicy(ScalingConfig(), Traffic())
    bounds = Bounds(min_warm=1, max_replicas=4, upscale_delay_s=10)
    load = _load(bounds=bounds, num_queued=5000, counts=ReplicaCounts(warm=1))
    all_desired = [(at_s, desired.num_warm) for at_s in range(30) for desired in policy.decide([load], at_s * NS)]
    assert [number for at_s, number in all_desired if at_s < 10] == [1]
    assert [number for at_s, number in all_desired if at_s >= 10] == [4]
