"""What guessing gains in the simulator, where time is virtual and the figures are always the same."""

import pytest

from dyorc.simulation.ledger import SimulationResult
from dyorc.simulation.simulate import simulate

NUM_REQUESTS = 3000


def run(workload: str, policy: str, load: float) -> SimulationResult:
    return simulate(workload, policy, load=load, num_requests=NUM_REQUESTS)


@pytest.mark.parametrize("load", [0.2, 0.8])
def test_a_guard_hardly_costs_anything_beside_its_generator(load: float) -> None:
    guessing, oracle, greedy = (run("guard", policy, load) for policy in ("speculate", "oracle", "greedy"))
    assert guessing.p50_ms < 1.1 * oracle.p50_ms
    assert guessing.p99_ms < 1.1 * oracle.p99_ms
    assert guessing.p50_ms < 0.8 * greedy.p50_ms
    assert guessing.wasted_ratio < 0.05
    assert guessing.commits > 20 * guessing.squashes
    assert guessing.commits + guessing.squashes == guessing.speculations


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_guessing_does_no_harm_where_nothing_can_be_predicted(load: float) -> None:
    guessing, greedy = run("coin", "speculate", load), run("coin", "greedy", load)
    assert guessing.p50_ms < 1.02 * greedy.p50_ms
    assert guessing.p99_ms < 1.02 * greedy.p99_ms


def test_wrong_guesses_stay_within_their_budget() -> None:
    guessing = run("cascade", "speculate", 0.2)
    assert guessing.speculations > 500
    assert 0.1 < guessing.wasted_ratio < 0.31


def test_the_oracle_wastes_nothing_and_holding_alone_guesses_nothing() -> None:
    assert run("nested", "oracle", 0.5).wasted_ratio == 0
    assert run("nested", "hold", 0.5).speculations == 0
