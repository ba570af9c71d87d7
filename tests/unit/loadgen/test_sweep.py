"""The search for the highest rate, on made-up targets."""

from collections.abc import Callable, Iterator

import pytest

from loadgen.results import RunResult
from loadgen.sweep import Probe, sweep
from loadgen.sweep_cli import probe_line, summary
from tests.unit.loadgen.made_results import result


def server(capacity_rps: float, *, over: float = 0.5, **always: object) -> Callable[[float], RunResult]:
    """Makes a target that meets every objective up to its capacity; beyond, only this part of the answers is in time."""
    return lambda rate_rps: result(rate_rps=rate_rps, goodput_ratio=1.0 if rate_rps <= capacity_rps else over, **always)


@pytest.mark.parametrize("capacity_rps", [1.3, 90, 100, 101, 730, 12_345])
@pytest.mark.parametrize("precision", [0.02, 0.1])
def test_it_finds_the_highest_rate_from_above_and_from_below(capacity_rps: float, precision: float) -> None:
    found = sweep(server(capacity_rps), start_rps=100, max_rps=1e6, precision=precision)

    assert capacity_rps / (1 + precision) <= found.highest_rps <= capacity_rps
    assert not found.limited_by_client
    assert not found.reached_max
    assert len(found.probes) < 25


def test_every_measurement_is_kept_and_shown() -> None:
    shown: list[Probe] = []

    found = sweep(server(300), start_rps=100, max_rps=1e6, show=shown.append)

    assert found.probes == shown
    assert [probe.rate_rps for probe in shown[:3]] == [100, 200, 400]
    assert [probe.is_met for probe in shown[:3]] == [True, True, False]
    assert all(probe.result.load["rate_rps"] == probe.rate_rps for probe in shown)


def test_it_never_exceeds_the_highest_rate_allowed() -> None:
    found = sweep(server(1e9), start_rps=100, max_rps=350)

    assert found.highest_rps == 350
    assert found.reached_max
    assert max(probe.rate_rps for probe in found.probes) == 350


def test_a_chance_failure_is_tried_again() -> None:
    """The machine hiccups at every first try: the second one counts."""
    seen: set[float] = set()

    def hiccups(rate_rps: float) -> RunResult:
        is_first = rate_rps not in seen
        seen.add(rate_rps)
        return result(rate_rps=rate_rps, goodput_ratio=0.95 if is_first or rate_rps > 500 else 1.0)

    found = sweep(hiccups, start_rps=100, max_rps=1e6)

    assert 500 / 1.1 <= found.highest_rps <= 500
    assert [probe.is_repeated for probe in found.probes[:4]] == [False, True, False, True]


def test_a_clear_failure_is_not_tried_again() -> None:
    found = sweep(server(300, over=0.5), start_rps=100, max_rps=1e6)

    assert not any(probe.is_repeated for probe in found.probes)
    near = sweep(server(300, over=0.9), start_rps=100, max_rps=1e6)
    assert any(probe.is_repeated for probe in near.probes)
    assert near.highest_rps == found.highest_rps


def test_the_required_share_of_answers_in_time_is_respected() -> None:
    def falls_slowly(rate_rps: float) -> RunResult:
        return result(rate_rps=rate_rps, goodput_ratio=1 - rate_rps / 10_000)

    strict = sweep(falls_slowly, start_rps=10, max_rps=1e6, min_goodput_ratio=0.99)
    lax = sweep(falls_slowly, start_rps=10, max_rps=1e6, min_goodput_ratio=0.90)

    assert 90 < strict.highest_rps <= 100
    assert 900 < lax.highest_rps <= 1000


def test_one_wrong_answer_is_a_failure_and_not_tried_again() -> None:
    def wrong_above_300(rate_rps: float) -> RunResult:
        return result(rate_rps=rate_rps, wrong=1 if rate_rps > 300 else 0)

    found = sweep(wrong_above_300, start_rps=100, max_rps=1e6)

    assert 300 / 1.1 <= found.highest_rps <= 300
    assert not any(probe.is_repeated for probe in found.probes)
    assert "wrong" in found.reason


def test_a_target_may_fail_at_every_rate() -> None:
    found = sweep(server(0), start_rps=100, max_rps=1e6)

    assert found.highest_rps == 0
    assert len(found.probes) == 11
    assert "no rate" in summary(found, 25)
    assert len(sweep(server(1e9, wrong=2), start_rps=100, max_rps=1e6).probes) == 2


def test_no_rate_is_tried_that_yields_hardly_any_requests() -> None:
    found = sweep(server(0), start_rps=100, max_rps=1e6, min_rps=20)

    assert [probe.rate_rps for probe in found.probes] == [100, 50, 25]
    with pytest.raises(ValueError, match="not below 200"):
        sweep(server(1), start_rps=100, max_rps=1e6, min_rps=200)


def test_it_stops_where_the_generator_was_the_limit() -> None:
    def client_up_to_700(rate_rps: float) -> RunResult:
        return result(rate_rps=rate_rps, client_warning="send delay p99 3 ms" if rate_rps > 700 else "")

    found = sweep(client_up_to_700, start_rps=100, max_rps=1e6)

    assert found.highest_rps == 800
    assert found.limited_by_client
    assert "send delay p99 3 ms" in found.reason
    assert [probe.rate_rps for probe in found.probes] == [100, 200, 400, 800, 800]


def test_it_goes_on_past_the_generators_limit_if_told_to() -> None:
    def always_warns(rate_rps: float) -> RunResult:
        return result(rate_rps=rate_rps, goodput_ratio=1.0 if rate_rps <= 700 else 0.3, client_warning="busy")

    found = sweep(always_warns, start_rps=100, max_rps=1e6, stop_at_client_limit=False)

    assert 700 / 1.1 <= found.highest_rps <= 700
    assert found.limited_by_client
    assert not any(probe.is_repeated for probe in found.probes)


def test_it_says_that_the_generator_could_not_reach_the_next_rate() -> None:
    def both(rate_rps: float) -> RunResult:
        return result(
            rate_rps=rate_rps, goodput_ratio=1.0 if rate_rps <= 500 else 0.3, client_warning="busy" if rate_rps > 500 else ""
        )

    found = sweep(both, start_rps=100, max_rps=1e6)

    assert 500 / 1.1 <= found.highest_rps <= 500
    assert found.limited_by_client
    assert "busy" in found.reason


def test_a_warning_by_chance_does_not_end_the_search() -> None:
    warnings: Iterator[str] = iter(["busy", *[""] * 100])

    def warns_once(rate_rps: float) -> RunResult:
        return result(rate_rps=rate_rps, goodput_ratio=1.0 if rate_rps <= 300 else 0.5, client_warning=next(warnings))

    found = sweep(warns_once, start_rps=100, max_rps=1e6)

    assert 300 / 1.1 <= found.highest_rps <= 300
    assert not found.limited_by_client


@pytest.mark.parametrize(
    "changes", [{"start_rps": 0}, {"start_rps": 200, "max_rps": 100}, {"precision": 0}, {"min_goodput_ratio": 1.5}]
)
def test_senseless_arguments_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        sweep(server(100), **({"start_rps": 10, "max_rps": 100} | changes))


def test_each_measurement_prints_a_line() -> None:
    found = sweep(server(300, over=0.9), start_rps=100, max_rps=1e6, label="mine")
    lines = [probe_line(probe) for probe in found.probes]

    assert lines[0].split()[:4] == ["100.0/s", "met", "100.0", "%"]
    assert "missed" in lines[2]
    assert "second try" in lines[3]
    assert summary(found, 25).startswith(f"mine: {found.highest_rps:,.1f} requests/s within 25 ms")
