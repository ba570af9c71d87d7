"""What the benchmark of scaling policies says of its goal."""

import pytest

from benchmarks.focused.scaling import judged
from dyorc.simulation.scaling.policy_comparison import PolicyComparison
from dyorc.simulation.scaling.scaling_results import ScalingResult


def result(policy: str, cold_misses: int, warm_s: float, parked_s: float = 0.0) -> ScalingResult:
    return ScalingResult(
        policy=policy,
        requests=1000,
        p50_ms=1.0,
        p99_ms=2.0,
        cold_misses=cold_misses,
        misses=cold_misses,
        warm_s=warm_s,
        parked_s=parked_s,
        turns=0,
    )


@pytest.mark.parametrize(
    ("cold_misses", "warm_s", "parked_s", "is_free_met", "is_full_met"),
    [
        (10, 1100, 0, True, True),
        (11, 1100, 0, False, False),
        (10, 1100, 1, True, False),
        (10, 1101, 0, False, False),
        (100, 700, 0, True, True),
        (100, 701, 0, False, False),
        (101, 700, 0, False, False),
        (100, 600, 200, True, False),
    ],
)
def test_the_goal(cold_misses: int, warm_s: float, parked_s: float, is_free_met: bool, is_full_met: bool) -> None:
    results = [
        result("predictive", cold_misses, warm_s, parked_s),
        result("reactive", 100, 1000.0),
        result("reactive0", 100, 1000.0),
        result("oracle", 0, 500.0),
    ]
    found = judged(PolicyComparison(results={one.policy: one for one in results}, courses={}, slo_s={}, least_s=1.0, demand=[]))

    assert found["beside"]["reactive"]["is_met"] == {"parked_free": is_free_met, "parked_full": is_full_met}
    assert found["cost_over_oracle"]["parked_full"] == pytest.approx((warm_s + parked_s) / 500)
