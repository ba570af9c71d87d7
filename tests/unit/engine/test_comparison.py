"""Whether guessing pays is measured, by requests with and without guesses."""

import random

import pytest

from dyorc.engine.guessing.speculation_trial import SpeculationTrial
from dyorc.engine.model.speculation_budget import Round
from tests.unit.engine.driver import World
from tests.unit.engine.programs import double
from tests.unit.engine.speculative_world import GOOD, Says, counts, guarded, world_with

_MS = 1_000_000


class Traffic:
    """Requests of one workflow, one every 25 ms, each answered before the next.

    Attributes:
        guessed: Whether each guessed.
    """

    def __init__(self, *, with_guesses_ms: float, without_ms: float, noise: float = 0.0) -> None:
        self.comparison = SpeculationTrial()
        self.times_ms = {True: with_guesses_ms, False: without_ms}
        self.noise = noise
        self.guessed: list[bool] = []
        self._random = random.Random(0)
        self._now_ns = 0

    def send(self, number: int) -> float:
        """Sends requests. Returns how many of them guessed, as a fraction."""
        for _ in range(number):
            self._now_ns += 25 * _MS
            of_round = self.comparison.admit(self._now_ns)
            self.guessed.append(of_round.is_guessing)
            of_round.has_guessed |= of_round.is_guessing
            took_ms = self.times_ms[of_round.is_guessing] * self._random.lognormvariate(0, self.noise)
            of_round.add_time(int(took_ms * _MS))
        return sum(self.guessed[-number:]) / number


def test_a_workflow_that_is_quicker_without_guesses_does_without() -> None:
    traffic = Traffic(with_guesses_ms=12, without_ms=10, noise=0.3)
    assert traffic.send(96) == 1, "nothing is compared before there is something to compare"
    traffic.send(400)
    assert traffic.send(1000) < 0.1
    assert traffic.comparison.report()["is_guessing"] is False
    assert traffic.comparison.ratio == pytest.approx(1.2, rel=0.3)


def test_a_workflow_that_is_quicker_with_guesses_is_rarely_made_to_do_without() -> None:
    traffic = Traffic(with_guesses_ms=10, without_ms=15, noise=0.3)
    traffic.send(600)
    assert traffic.send(10_000) > 0.97
    assert traffic.comparison.ratio == pytest.approx(1 / 1.5, rel=0.15)


def test_what_has_changed_is_noticed() -> None:
    traffic = Traffic(with_guesses_ms=10, without_ms=15, noise=0.1)
    traffic.send(600)
    traffic.times_ms = {True: 15, False: 10}
    traffic.send(5000)
    assert traffic.send(1000) < 0.1
    traffic.times_ms = {True: 10, False: 15}
    traffic.send(5000)
    assert traffic.send(1000) > 0.9


def test_a_machine_that_becomes_slower_decides_nothing() -> None:
    traffic = Traffic(with_guesses_ms=10, without_ms=15)
    for _ in range(100):
        traffic.send(10)
        traffic.times_ms = {guesses: 1.02 * took_ms for guesses, took_ms in traffic.times_ms.items()}
    assert traffic.comparison.ratio == pytest.approx(1 / 1.5, rel=0.05)


def test_where_nothing_is_guessed_nothing_is_compared() -> None:
    comparison = SpeculationTrial()
    for at in range(1000):
        of_round = comparison.admit(at * 25 * _MS)
        assert of_round.is_guessing
        of_round.add_time(10 * _MS)
    assert comparison.ratio is None


def test_requests_that_never_end_do_not_pile_up() -> None:
    comparison = SpeculationTrial()
    rounds: list[Round] = []
    for at in range(20_000):
        rounds.append(comparison.admit(at * 25 * _MS))
        rounds[-1].has_guessed = True
    assert comparison.ratio is None, "nothing is known"
    assert {each.is_guessing for each in rounds[-100:]} == {True, False}, "and it is tried still"
    assert len(comparison._open) <= 16  # pyright: ignore[reportPrivateUsage]


def serve(world: World, number: int) -> int:
    """Sends requests, one after another, which take longer if they guess. Returns how many guesses there were."""
    before = counts(world)[0]
    for _ in range(number):
        num_guesses = counts(world)[0]
        world.submit(guarded, GOOD)
        world.advance(0.5 if counts(world)[0] > num_guesses else 0.0)
        while running := list(world.in_flight.values()):
            world.advance(0.11)
            for batch in running:
                world.finish(batch, execute_s=0.11)
        world.advance(1.0)
    return counts(world)[0] - before


def test_the_engine_stops_guessing_where_requests_are_quicker_without() -> None:
    world = world_with()
    assert serve(world, 90) == 90
    serve(world, 130)
    assert serve(world, 60) == 0
    assert world.engine.speculator.report()["workflows"]["guarded"]["is_guessing"] is False
    world.check_nothing_is_left()


def test_the_engine_guesses_on_if_it_is_told_not_to_compare() -> None:
    world = world_with(compare=False)
    assert serve(world, 350) == 350
    world.check_nothing_is_left()


def test_outcomes_that_are_certain_are_followed_by_requests_that_do_not_guess() -> None:
    sure = Says({True: 0.9, False: 0.05})
    world = world_with(sure)
    serve(world, 220)
    assert serve(world, 10) == 0
    sure.distribution = {True: 1.0}
    world.submit(guarded, GOOD)
    assert len(world.batches(double)) == 1, "it runs beside what the decision waits for"
    world.finish_all()
    world.check_nothing_is_left()
