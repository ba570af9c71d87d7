"""The search for highest rates, in turns, on machines whose speed changes."""

from collections.abc import Callable

import pytest

from benchmarks.table.staircase import Bounds, climbed
from loadgen.results import RunResult
from tests.unit.loadgen.made_results import result

BOUNDS = Bounds(start_rps=100.0, min_rps=5.0, max_rps=10_000.0)


def _slowing(limit_rps: float) -> Callable[[int], float]:
    return lambda turn: limit_rps / 1.04**turn


def machine(limits_rps: dict[str, Callable[[int], float]], warned: str = "") -> Callable[[str, int, float], RunResult | None]:
    """Returns a probe of systems that meet the SLO up to a rate that depends on the turn."""

    def probe(system: str, turn: int, rate_rps: float) -> RunResult | None:
        is_met = rate_rps <= limits_rps[system](turn)
        return result(system, goodput_ratio=1.0 if is_met else 0.5, client_warning="too slow" if system == warned else "")

    return probe


@pytest.mark.parametrize("limit_rps", [8.0, 130.0, 2_500.0])
def test_the_highest_rate_is_found_from_below_and_above(limit_rps: float) -> None:
    found = climbed({"a": BOUNDS}, machine({"a": lambda _: limit_rps}))["a"]
    assert found.highest_rps == pytest.approx(limit_rps, rel=0.1)
    assert len(found.rates_rps) == 6


def test_when_the_machine_becomes_slower_ratios_stay() -> None:
    found = climbed({"a": BOUNDS, "b": BOUNDS}, machine({"a": _slowing(300.0), "b": _slowing(150.0)}))
    assert found["a"].highest_rps / found["b"].highest_rps == pytest.approx(2.0, rel=0.15)


def test_one_slow_turn_does_not_spoil_the_result() -> None:
    found = climbed({"a": BOUNDS}, machine({"a": lambda turn: 20.0 if turn == 3 else 400.0}))["a"]
    assert found.highest_rps == pytest.approx(400.0, rel=0.15)


def test_a_system_that_never_meets_the_slo_has_no_rate() -> None:
    found = climbed({"a": BOUNDS}, machine({"a": lambda _: 1.0}))["a"]
    assert (found.highest_rps, found.rates_rps) == (0.0, [])


def test_no_rate_is_beyond_the_bounds() -> None:
    tried: list[float] = []

    def probe(system: str, turn: int, rate_rps: float) -> RunResult | None:
        tried.append(rate_rps)
        return result(system)

    assert climbed({"a": BOUNDS}, probe)["a"].highest_rps == pytest.approx(BOUNDS.max_rps)
    assert max(tried) == BOUNDS.max_rps


def test_a_slow_load_generator_is_reported_where_it_matters() -> None:
    found = climbed({"a": BOUNDS, "b": BOUNDS}, machine({"a": _slowing(130.0), "b": _slowing(130.0)}, warned="a"))
    assert (found["a"].is_client_limited, found["b"].is_client_limited) == (True, False)


def test_each_turn_visits_all_in_another_order_and_failures_are_left_out() -> None:
    done: list[str] = []

    def probe(system: str, turn: int, rate_rps: float) -> RunResult | None:
        done.append(f"{system}{turn}")
        return None if (system, turn) == ("c", 1) else result(system)

    found = climbed(dict.fromkeys("abc", BOUNDS), probe, num_turns=3)
    assert done == ["a0", "b0", "c0", "b1", "c1", "a1", "a2", "b2"]
    assert set(found) == {"a", "b"}
