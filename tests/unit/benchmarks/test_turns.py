"""Systems take turns: who is measured when, and what pairs of rounds say."""

import itertools
from collections.abc import Mapping, Sequence

import pytest

from benchmarks.table.pairs import paired, ratio_of
from benchmarks.table.rounds import Rule, interleaved
from benchmarks.table.speed import speed
from benchmarks.table.stage import Stage
from loadgen.results import RunResult
from tests.unit.benchmarks.made_tables import cell
from tests.unit.loadgen.made_results import result

RULE = Rule(min_rounds=2, max_rounds=4)


def turns(p50s_ms: Mapping[str, Sequence[float]], rule: Rule = RULE, **goodput: float) -> list[str]:
    """Returns who is measured, in order, as name and round. The last figure of a system is its p50 from then on."""
    done: list[str] = []

    def measure(system: str, number: int) -> RunResult | None:
        done.append(f"{system}{number}")
        figures = p50s_ms[system]
        if not figures:
            return None
        median_ms = figures[min(number, len(figures) - 1)]
        return result(system, median_ms=median_ms, goodput_ratio=goodput.get(system, 1.0))

    interleaved(list(p50s_ms), ["ours"], rule, measure)
    return done


def test_each_round_visits_all_in_another_order() -> None:
    assert turns({"ours": [1.0], "a": [2.0], "b": [3.0]}) == ["ours0", "a0", "b0", "a1", "b1", "ours1"]


def test_only_what_does_not_agree_is_measured_again() -> None:
    done = turns({"ours": [1.0], "steady": [2.0], "restless": [2.0, 3.0, 4.5, 6.0]})
    assert [name for name in done if name.endswith(("2", "3"))] == ["ours2", "restless2", "restless3", "ours3"]


def test_a_machine_that_slows_down_for_all_does_not_cause_another_round() -> None:
    assert len(turns({"ours": [1.0, 2.0], "a": [3.0, 6.0]})) == 4


def test_a_system_that_cannot_keep_up_is_measured_once() -> None:
    assert turns({"ours": [1.0], "slow": [900.0]}, slow=0.1) == ["ours0", "slow0", "ours1"]


def test_a_system_that_fails_is_left_out() -> None:
    assert turns({"ours": [1.0], "broken": []}) == ["ours0", "broken0", "ours1"]


def test_without_systems_there_is_nothing_to_do() -> None:
    assert turns({}) == []


def test_the_ratio_of_a_pair_comes_from_the_same_round() -> None:
    ours = cell("dyorc", 2.0, 9.0, rounds=[0, 1, 2], p50s_ms=[1.0, 2.0, 4.0], p99s_ms=[9.0, 9.0, 9.0])
    peer = cell("ray", 4.0, 9.0, rounds=[0, 2], p50s_ms=[2.0, 8.4], p99s_ms=[9.0, 18.0])
    found = paired(ours, peer, "p50")
    assert found is not None
    assert (found.median, found.low, found.high, found.num_rounds) == (pytest.approx(2.05), 2.0, 2.1, 2)
    assert found.is_clear
    other = paired(ours, peer, "p99")
    assert other is not None
    assert (other.low, other.high, other.is_clear) == (1.0, 2.0, False)


def test_tables_without_numbers_of_rounds_have_no_pairs() -> None:
    assert paired(cell("dyorc", 2.0, 9.0, p50s_ms=[2.0]), cell("ray", 4.0, 9.0, p50s_ms=[4.0]), "p50") is None


def test_the_interval_of_a_median_gets_narrower_with_more_rounds() -> None:
    few = ratio_of([1.0, 2.0, 3.0])
    assert few is not None
    assert (few.low, few.high, few.coverage) == (1.0, 3.0, 0.75)
    six = ratio_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert six is not None
    assert (six.low, six.high, six.coverage) == (1.0, 6.0, 0.96875)
    many = ratio_of([float(at) for at in range(1, 21)])
    assert many is not None
    assert (many.median, many.low, many.high) == (10.5, 6.0, 15.0)
    assert many.coverage >= 0.95
    assert ratio_of([]) is None


class Server:
    """Notes what is done to it."""

    def __init__(self, notes: list[str], name: str) -> None:
        self._notes = notes
        self._name = name

    def pause(self) -> None:
        self._notes.append(f"pause {self._name}")

    def resume(self) -> None:
        self._notes.append(f"resume {self._name}")


def test_only_one_server_has_the_processor() -> None:
    notes: list[str] = []
    a, b = Server(notes, "a"), Server(notes, "b")
    stage = Stage(0.3, lambda seconds: notes.append(f"all run for {seconds}"))
    with stage.on_stage(a), stage.alone(a):
        notes.append("measured")
    with stage.on_stage(a), stage.on_stage(b), stage.alone(b):
        notes.append("measured")
    assert notes == ["measured", "pause a", "measured", "resume a", "all run for 0.3"]


def test_servers_go_on_after_an_error() -> None:
    notes: list[str] = []
    a, b = Server(notes, "a"), Server(notes, "b")
    stage = Stage(0.0, lambda seconds: None)
    with pytest.raises(ZeroDivisionError), stage.on_stage(a), stage.on_stage(b), stage.alone(b):
        raise ZeroDivisionError
    assert notes == ["pause a", "resume a"]


def test_the_speed_is_the_median_time_of_fixed_work() -> None:
    gaps = itertools.chain([0.002, 0.002, 0.050, 0.002, 0.002], itertools.repeat(0.004))
    times: list[float] = [0.0]

    def clock_s() -> float:
        if len(times) % 2 == 0:
            times.append(times[-1] + next(gaps))
        else:
            times.append(times[-1])
        return times[-1]

    found = speed(clock_s)
    assert (found.python_ms, found.blas_ms) == (pytest.approx(2.0), pytest.approx(4.0))
