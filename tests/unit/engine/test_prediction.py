"""How well decisions are predicted. A predictor is asked before each outcome is shown to it."""

import gc
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pytest

import dyorc
from dyorc.authoring import decisions
from dyorc.authoring.decisions import Decision, DecisionKind, DecisionSite
from dyorc.authoring.exact_values import exact, plain
from dyorc.authoring.ref import Ref
from dyorc.engine.guessing.prediction import HistoryPredictor
from dyorc.engine.model.futures import Future
from dyorc.engine.model.journal import Context
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, is_large

SITE = DecisionSite(add_one.declared.__class__.of.__code__, 1)


def decision(kind: DecisionKind = DecisionKind.WHEN, likely: Hashable = None, site: DecisionSite = SITE) -> Decision:
    return Decision(kind, Ref(Future(None), add_one.signature.outputs), bool, site, likely)


WHEN = decision()
CHOOSE = decision(DecisionKind.CHOOSE)


def context(turn: int = 0, *recent: Hashable, site: DecisionSite = SITE) -> Context:
    return (site, turn, recent)


def seen(outcomes: Iterable[Hashable], of: Decision = WHEN, at: Context = context()) -> HistoryPredictor:  # noqa: B008 (a tuple)
    predictor = HistoryPredictor()
    for outcome in outcomes:
        predictor.observe(of, at, outcome)
    return predictor


def runs(turns: Sequence[bool], number: int) -> HistoryPredictor:
    """Returns a predictor that has seen a loop's decisions turn out like this, the given number of times."""
    predictor = HistoryPredictor()
    for _ in range(number):
        recent: tuple[bool, ...] = ()
        for turn, outcome in enumerate(turns):
            predictor.observe(WHEN, context(turn, *recent), outcome)
            recent = (*recent[-1:], outcome)
    return predictor


def num_until_likely(predictor: HistoryPredictor, of: Decision, outcome: Hashable) -> int:
    """Returns how many observations of an outcome it takes until it is predicted."""
    for number in range(1, 1000):
        predictor.observe(of, context(), outcome)
        if predictor.predict(of, context())[outcome] > 0.5:
            return number
    raise AssertionError("it never is")


def test_before_anything_was_seen_yes_and_no_are_equally_likely() -> None:
    assert HistoryPredictor().predict(WHEN, context()) == {True: 0.5, False: 0.5}


def test_before_anything_was_seen_nothing_is_known_of_a_choice() -> None:
    assert HistoryPredictor().predict(CHOOSE, context()) == {}


def test_the_commonest_outcome_is_the_likeliest_and_comes_first() -> None:
    distribution = seen([True] * 30 + [False] * 3).predict(WHEN, context())
    assert list(distribution) == [True, False]
    assert distribution[True] == pytest.approx(0.88, abs=0.06)
    assert sum(distribution.values()) == pytest.approx(1)


def test_nothing_is_certain_even_if_it_always_happened() -> None:
    assert 0.99 < seen([True] * 1000).predict(WHEN, context())[True] < 1


def test_one_observation_tells_little() -> None:
    assert seen([True]).predict(WHEN, context())[True] < 0.8


@pytest.mark.parametrize("num_before", [10, 1000, 20_000])
def test_a_change_of_the_usual_outcome_is_learned(num_before: int) -> None:
    predictor = seen([True] * num_before)
    assert num_until_likely(predictor, WHEN, False) <= min(num_before, 160) + 20


def test_a_loop_that_always_stops_at_its_third_turn_is_predicted_turn_by_turn() -> None:
    predictor = runs([True, True, True, False], 40)
    recent: tuple[bool, ...] = ()
    for turn, outcome in enumerate([True, True, True, False]):
        assert predictor.predict(WHEN, context(turn, *recent))[outcome] > 0.85, turn
        recent = (*recent[-1:], outcome)


def test_alternating_outcomes_are_predicted_from_the_last_ones() -> None:
    predictor = HistoryPredictor()
    for number in range(100):
        predictor.observe(WHEN, context(0, number % 2 == 0), number % 2 == 1)
    assert predictor.predict(WHEN, context(0, True))[False] > 0.9
    assert predictor.predict(WHEN, context(0, False))[True] > 0.9


def test_an_unseen_history_is_predicted_like_its_site() -> None:
    assert seen([True] * 100).predict(WHEN, context(7, False))[True] > 0.95


def test_sites_do_not_learn_from_each_other() -> None:
    other = DecisionSite(SITE.code, 2)
    assert seen([True] * 100).predict(decision(site=other), context(site=other)) == {True: 0.5, False: 0.5}


@pytest.mark.parametrize("likely", [True, False])
def test_a_hint_counts_as_long_as_nothing_was_seen(likely: bool) -> None:
    distribution = HistoryPredictor().predict(decision(likely=likely), context())
    assert list(distribution) == [likely, not likely]
    assert distribution[likely] == pytest.approx(0.9)
    assert sum(distribution.values()) == pytest.approx(1)


def test_a_hint_at_a_choice_leaves_room_for_other_outcomes() -> None:
    assert HistoryPredictor().predict(decision(DecisionKind.CHOOSE, "left"), context()) == {"left": 0.9}


def test_a_wrong_hint_is_soon_outweighed() -> None:
    hinted = decision(likely=True)
    predictor = HistoryPredictor()
    assert 1 < num_until_likely(predictor, hinted, False) <= 8, "a hint counts for some observations, but not for many"
    for _ in range(20):
        predictor.observe(hinted, context(), False)
    assert predictor.predict(hinted, context(5))[False] > 0.5, "nor where its context was never seen"
    for _ in range(200):
        predictor.observe(hinted, context(), False)
    assert predictor.predict(hinted, context())[True] < 0.02


@pytest.mark.parametrize("likely", [None, 3])
def test_a_choice_among_many_has_the_odds_that_were_seen(likely: Hashable) -> None:
    among = decision(DecisionKind.CHOOSE, likely)
    predictor = seen([exact(number % 10) for number in range(1000)] + [exact(3)] * 100, among)
    distribution = {plain(outcome): probability for outcome, probability in predictor.predict(among, context()).items()}
    assert next(iter(distribution)) == 3
    assert set(distribution) == set(range(10))
    assert list(distribution.values()) == sorted(distribution.values(), reverse=True)
    assert 0.999 < sum(distribution.values()) <= 1 + 1e-9
    assert all(distribution[outcome] == pytest.approx(0.06, abs=0.03) for outcome in range(10) if outcome != 3)


def test_a_distribution_that_was_kept_is_close_to_the_exact_one() -> None:
    kept = HistoryPredictor()
    outcomes = [(number * 7919) % 10 < 7 for number in range(400)] + [False] * 100
    for number, outcome in enumerate(outcomes):
        kept.predict(WHEN, context())
        kept.observe(WHEN, context(), outcome)
        exact = seen(outcomes[: number + 1]).predict(WHEN, context())
        assert kept.predict(WHEN, context())[True] == pytest.approx(exact[True], abs=1 / 8), number


def test_every_early_observation_changes_the_prediction() -> None:
    predictor = HistoryPredictor()
    for _ in range(3):
        before = predictor.predict(WHEN, context())[True]
        predictor.observe(WHEN, context(), True)
        assert predictor.predict(WHEN, context())[True] > before, "while little is known, every observation shows at once"


def test_contexts_do_not_fill_the_memory() -> None:
    predictor = HistoryPredictor()
    for number in range(25_000):
        predictor.observe(CHOOSE, context(0, number), number % 3)
    assert len(predictor._contexts) <= 10_000  # pyright: ignore[reportPrivateUsage]
    assert predictor.predict(CHOOSE, context(0, "new")).keys() == {0, 1, 2}, "its site is still known"


def test_a_choice_with_endlessly_many_outcomes_does_not_fill_the_memory() -> None:
    predictor = HistoryPredictor()
    for number in range(25_000):
        predictor.observe(CHOOSE, context(), number)
    assert len(predictor.predict(CHOOSE, context())) < 10_000


def test_after_a_hundred_thousand_observations_it_still_counts_correctly() -> None:
    predictor = seen(number % 4 != 0 for number in range(100_000))
    distribution = predictor.predict(WHEN, context())
    assert distribution[True] == pytest.approx(0.75, abs=0.02)
    assert sum(distribution.values()) == pytest.approx(1)


@dyorc.workflow
async def count_up(x: Vector) -> Vector:
    while not await dyorc.when(x, is_large):
        x = add_one(x)
    return x


def test_the_turns_of_a_loop_are_told_apart_in_the_engine() -> None:
    """The engine hands over the context that the tests above use: site, turn, last outcomes."""
    asked: list[Context] = []

    class Listening:
        def __init__(self) -> None:
            self.predict = HistoryPredictor().predict

        def observe(self, decision: Decision, context: Context, outcome: Hashable) -> None:
            asked.append(context)

    world = World([add_one], predictor=Listening())
    world.join(add_one)
    world.submit(count_up, [3, 3])
    world.finish_all()
    # The first decision looks at the input, which is at hand: it is nothing to guess.
    assert [(turn, recent) for _, turn, recent in asked] == [(1, (False,)), (2, (False, False)), (3, (False, False))]


def test_places_go_with_their_code() -> None:
    def decision_of_a_version() -> Decision:
        names: dict[str, Any] = {"when": dyorc.when}
        exec("def decide(ref):\n    return when(ref, bool)", names)
        return names["decide"](Ref(Future(None), add_one.signature.outputs))

    predictor = HistoryPredictor()
    num_before = len(decisions._sites)
    for _ in range(5):
        of_version = decision_of_a_version()
        predictor.observe(of_version, context(site=of_version.site), True)
        del of_version
        gc.collect()
    assert len(decisions._sites) == num_before
    predictor.observe(WHEN, context(), True)
    assert set(predictor._sites) == {SITE}
