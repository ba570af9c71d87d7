"""What the storm takes for a violation."""

from collections import Counter

import pytest

from tests.storm import scorecard
from tests.storm.clients import Outcome
from tests.storm.contract import CONNECTION, Fault
from tests.storm.driver import ShapeResult
from tests.storm.judgement import Settlement, Strike, excuses, grown

_KILL_CELL = Fault(name="kill cell", apply=lambda: None, bound_s=5.0, codes=["effect_lost"], cuts=[0], pids=[7])
_RESTART = Fault(name="restart", apply=lambda: None, bound_s=5.0, cuts=[0], is_graceful=True)


def _outcome(code: str, *, entrance: int = 0, pid: int | None = None, began_s: float = 100.0) -> Outcome:
    return Outcome(0, entrance, "plain", 1, began_s, began_s + 1, code, pid=pid)


@pytest.mark.parametrize(
    ("fault", "outcome", "is_excused"),
    [
        (_KILL_CELL, _outcome("effect_lost"), True),
        (_KILL_CELL, _outcome("internal"), False),
        (_KILL_CELL, _outcome(CONNECTION, pid=7), True),
        (_KILL_CELL, _outcome(CONNECTION), True),
        (_KILL_CELL, _outcome(CONNECTION, pid=8), False),
        (_KILL_CELL, _outcome(CONNECTION, entrance=1), False),
        (_RESTART, _outcome(CONNECTION), True),
        (_RESTART, _outcome(CONNECTION, began_s=99.0), False),
    ],
)
def test_a_failure_is_excused_by_the_fault_that_explains_it(fault: Fault, outcome: Outcome, is_excused: bool) -> None:
    assert excuses(fault, outcome, 100.0) == is_excused


def _result(**changes: object) -> ShapeResult:
    strike = Strike(["kill cell"], 0.0, bound_s=5.0, back_s=1.0, num_lines=3)
    books = Settlement(num_jobs=Counter(succeeded=2))
    values = {"strikes": [strike], "settlement": books, "leaks": [], "wrong": [], "broken": []} | changes
    return ShapeResult(shape="cells", num_requests=9, num_answers=9, seconds=1.0, **values)  # pyright: ignore[reportArgumentType]


def test_a_card_without_fault_has_no_violation() -> None:
    card = scorecard.card_of([_result()], {})
    assert scorecard.violations_of(card) == []
    assert scorecard.violations_of(scorecard.added(card, card)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"leaks": ["process 7"]},
        {"wrong": ["plain of 1: 3, expected 2"]},
        {"broken": ["ended with 1"]},
        {"settlement": Settlement(lost=["job 1"])},
        {"settlement": Settlement(doubled=["charged of 1 happened 2 times"])},
        {"strikes": [Strike(["kill cell"], 0.0, bound_s=5.0, back_s=5.1)]},
        {"strikes": [Strike(["kill cell"], 0.0, bound_s=5.0)]},
        {"strikes": [Strike(["kill cell"], 0.0, bound_s=5.0, back_s=1.0, unexplained=["internal"])]},
        {"strikes": [Strike(["kill cell"], 0.0, bound_s=5.0, back_s=1.0, num_lines=1000)]},
    ],
)
def test_every_figure_beyond_its_bound_is_a_violation(changes: dict[str, object]) -> None:
    card = scorecard.added(scorecard.card_of([_result()], {}), scorecard.card_of([_result(**changes)], {}))
    assert len(scorecard.violations_of(card)) == 1


def test_growth_counts_beyond_what_pools_take() -> None:
    assert grown({"cell": (50, 10), "gateway": (50, 10)}, {"cell": (60, 100)}) == ["a cell has 100 threads, at the beginning 10"]


def test_of_faults_that_happened_together_the_first_one_has_the_figures() -> None:
    strike = Strike(["kill server", "clock back"], 0.0, bound_s=5.0, back_s=1.0, num_lines=3)
    faults = scorecard.card_of([_result(strikes=[strike])], {})["shapes"]["cells"]["faults"]
    assert [row["times"] for row in faults.values()] == [1, 1]
    assert [row["longest_back_s"] for row in faults.values()] == [1.0, 0.0]
    assert [row["log_lines"] for row in faults.values()] == [1.5, 1.5]
