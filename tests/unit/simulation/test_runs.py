"""The results of whole runs."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

from dyorc.errors import InvalidInputError
from dyorc.simulation.ledger import ProgramResult
from dyorc.simulation.policies import POLICIES
from dyorc.simulation.simulate import SimulationSetting, saturation_rps, simulate, visits_per_request
from dyorc.simulation.workload import Workload
from dyorc.simulation.workloads import WORKLOADS, workload
from dyorc.simulation.workloads.single_decisions import guard
from dyorc.traffic.arrivals import Constant, Poisson
from tests.unit.simulation.tiny import tiny


@pytest.mark.parametrize(
    ("policy", "mean_batch_size", "p50_ms", "p99_ms"),
    [
        ("timer:0.000001", 1.0, 7226, 14251),
        ("timer", 4.1, 1592, 3152),
        ("timer:0.05", 17.6, 219, 360),
        ("greedy", 21.4, 112, 150),
    ],
)
def test_timer_batching_is_as_bad_as_it_was_measured(policy: str, mean_batch_size: float, p50_ms: float, p99_ms: float) -> None:
    """Measured with Ray Serve's own batcher: 300 evenly spaced arrivals at 333/s, T(n) = 50 + n ms, at most 32 in a batch."""
    result = simulate(
        tiny(base_s=0.050, item_s=0.001),
        policy,
        rate_rps=333,
        num_requests=300,
        setting=SimulationSetting(arrivals=Constant(), link_s=0, warmup_ratio=0),
    )

    assert result.mean_batch_size == pytest.approx(mean_batch_size, rel=0.08)
    assert result.p50_ms == pytest.approx(p50_ms, rel=0.08)
    assert result.p99_ms == pytest.approx(p99_ms, rel=0.08)


def test_a_burst_keeps_its_order_under_overload() -> None:
    """Nothing is refused, however long the queue gets."""
    result = simulate(tiny(), "timer:0.000001", rate_rps=5000, num_requests=6000)

    assert result.mean_batch_size < 1.1
    assert result.p99_ms > 50_000


@pytest.mark.parametrize("name", ["guard", "nested", "coin"])
def test_saturation_is_where_queues_begin_to_grow(name: str) -> None:
    """Below saturation, twice as many requests wait no longer than half of them."""
    below = [simulate(name, "greedy", load=0.95, num_requests=number) for number in (1500, 3000)]
    above = [simulate(name, "greedy", load=1.2, num_requests=number) for number in (1500, 3000)]

    assert below[1].p50_ms < 1.1 * below[0].p50_ms
    assert below[1].throughput_rps == pytest.approx(below[1].rate_rps, rel=0.05)
    assert above[1].p50_ms > 1.3 * above[0].p50_ms
    assert above[1].throughput_rps == pytest.approx(above[1].rate_rps / 1.2, rel=0.05)


def test_saturation_is_that_of_the_busiest_program() -> None:
    made = guard(yes_ratio=0.5)

    assert visits_per_request(made) == {"guard": 1.0, "generate": pytest.approx(0.5, abs=0.03)}
    assert saturation_rps(made, {"guard": 1, "generate": 40}) == pytest.approx(1 / (0.0002 + 0.008 / 32))
    by_generate = 2 / (visits_per_request(made)["generate"] * (0.0008 + 0.024 / 32))
    assert saturation_rps(made, {"guard": 10, "generate": 2}) == pytest.approx(by_generate)


def test_greedy_wastes_nothing_and_sums_add_up() -> None:
    result = simulate("cascade", "greedy", load=0.5, num_requests=1000, setting=SimulationSetting(warmup_ratio=0))

    assert result.wasted_ratio == 0
    small, large = result.programs["small"], result.programs["large"]
    assert small.num_calls == 1000
    assert 300 < large.num_calls < 500
    device_ms = 1000 * (small.device_time_s + large.device_time_s)
    assert result.device_time_per_request_ms == pytest.approx(device_ms / 1000)
    num_batches = small.num_calls / small.mean_batch_size + large.num_calls / large.mean_batch_size
    assert device_ms == pytest.approx(
        1000 * small.num_calls * 0.0002 + 1000 * large.num_calls * 0.0008 + _bases_ms(result.programs)
    )
    assert result.mean_batch_size == pytest.approx((small.num_calls + large.num_calls) / num_batches, rel=1e-4)


def _bases_ms(programs: Mapping[str, ProgramResult]) -> float:
    bases_ms = {"small": 6.0, "large": 20.0}
    return sum(bases_ms[name] * account.num_calls / account.mean_batch_size for name, account in programs.items())


def test_warm_up_is_left_out() -> None:
    everything = SimulationSetting(warmup_ratio=0)
    whole = simulate("guard", "greedy", load=0.5, num_requests=600, setting=everything)
    part = simulate("guard", "greedy", load=0.5, num_requests=600, setting=replace(everything, warmup_ratio=0.5))

    assert whole.programs["guard"].num_calls == 600
    assert part.programs["guard"].num_calls == 300


def test_all_policies_see_the_same_requests_at_the_same_times() -> None:
    calls = {
        policy: {name: account.num_calls - account.num_wasted for name, account in run.programs.items()}
        for policy in POLICIES
        for run in [simulate("agent", policy, load=0.3, num_requests=300)]
    }

    assert len({json.dumps(counts) for counts in calls.values()}) == 1


@pytest.mark.real  # two processes simulate 12 times each
def test_the_same_seed_gives_the_same_bytes() -> None:
    """The runs are in processes that hash texts differently."""
    script = (
        "import json; from dyorc.simulation.simulate import simulate; from dyorc.simulation.policies import POLICIES\n"
        "for policy in POLICIES:\n"
        "    for workload in ('fanout', 'agent'):\n"
        "        print(json.dumps(simulate(workload, policy, load=0.7, num_requests=60, seed=5).as_object()))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]

    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 2 * len(POLICIES)


def test_another_seed_gives_another_run() -> None:
    runs = [simulate("cascade", "greedy", load=0.5, num_requests=200, seed=seed) for seed in (0, 1)]

    assert runs[0].p50_ms != runs[1].p50_ms


def test_many_idle_replicas_cost_nothing() -> None:
    """A thousand replicas: the run ends, and nearly all of them stay idle."""
    result = simulate("guard", "greedy", rate_rps=500, replicas=500, num_requests=1000)

    assert result.num_replicas == 1000
    assert result.p50_ms == pytest.approx(8.2 + 0.2 + 24.8 + 0.2, abs=0.3)


def test_replicas_are_chosen_by_program() -> None:
    result = simulate("guard", "greedy", load=0.5, replicas={"generate": 2}, num_requests=100)

    assert {name: account.num_replicas for name, account in result.programs.items()} == {"guard": 1, "generate": 2}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"workload": "gard", "load": 0.5}, "no workload 'gard'; there are guard"),
        ({"policy_name": "gready", "load": 0.5}, "no policy 'gready'; there are timer, greedy"),
        ({}, "a rate or a load"),
        ({"load": 0.5, "rate_rps": 3.0}, "a rate or a load"),
        ({"load": -1}, "at more than 0"),
        ({"load": 0.5, "replicas": {"gurad": 3}}, r"no programs \['gurad'\]"),
        ({"load": 0.5, "replicas": 0}, "gets 0 replicas"),
        ({"policy_name": "timer:soon", "load": 0.5}, "'timer:soon'"),
    ],
)
def test_errors_name_wrong_arguments(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        simulate(**({"workload": "guard", "policy_name": "greedy"} | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_its_name_and_programs(name: str) -> None:
    made: Workload = workload(name)

    assert made.name == name
    assert set(made.programs) == set(made.workflow.programs)
    assert all(visits > 0.01 for visits in visits_per_request(made).values())


def test_poisson_is_the_default() -> None:
    assert isinstance(SimulationSetting().arrivals, Poisson)
