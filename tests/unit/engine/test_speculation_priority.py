"""Certain calls go before guesses, and calls with effects wait until they are certain."""

import numpy as np
import pytest

import dyorc
from dyorc.engine.actions import FormReason
from dyorc.engine.guessing.prediction import Predictor
from tests.unit.engine.programs import Vector, check, double, put, send
from tests.unit.engine.speculative_world import BAD, BOTH, GOOD, SURE_YES, YES, counts, guarded, is_good, warm, world_with


@dyorc.workflow
async def sends_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return send(double(x))
    return put(x)


@pytest.mark.parametrize("predictor", [YES, BOTH, SURE_YES])
def test_a_call_with_an_effect_waits_until_it_is_certain(predictor: Predictor) -> None:
    world = world_with(predictor)
    request_id = world.submit(sends_if_good, GOOD)
    world.finish(world.batches(double)[0])
    assert (world.sizes(send), world.sizes(put)) == ([], [])
    world.finish(world.batches(check)[0])
    assert (world.sizes(send), world.sizes(put)) == ([1], [])
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    world.check_nothing_is_left()


@pytest.mark.parametrize("predictor", [YES, BOTH, SURE_YES])
def test_an_effect_that_was_guessed_wrong_never_happens(predictor: Predictor) -> None:
    world = world_with(predictor)
    request_id = world.submit(sends_if_good, BAD)
    world.finish_all()
    assert np.array_equal(world.result(request_id), BAD)
    assert (world.sizes(send), world.sizes(put)) == ([], [1])
    world.check_nothing_is_left()


@dyorc.workflow
async def doubled(x: Vector) -> Vector:
    return double(x)


def test_a_certain_call_goes_before_an_earlier_guess() -> None:
    world = world_with(programs=[check])
    warm(world, double)
    world.submit(guarded, GOOD)
    world.submit_all(doubled, [[9, 9]] * 4)
    world.join(double)
    assert world.oldest().program == "check"
    assert [batch.column() for batch in world.batches(double)] == [[[9, 9]] * 4], "a full batch takes no guess along"


def test_guesses_fill_the_free_places_of_a_batch_that_runs_anyway() -> None:
    world = world_with(programs=[check])
    warm(world, double)
    world.submit_all(guarded, [GOOD] * 3)
    world.submit_all(doubled, [[9, 9]] * 2)
    world.join(double)
    assert world.batches(double)[0].column() == [[9, 9]] * 2 + [GOOD] * 2
    world.finish_all()
    assert len(world.answers) == 5
    world.check_nothing_is_left()


def test_a_call_predicted_with_certainty_is_queued_like_a_certain_one() -> None:
    world = world_with(SURE_YES)
    request_id = world.submit(guarded, GOOD)
    assert world.batches(double)[0].action.reason is FormReason.QUEUE_EMPTIED
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    assert counts(world) == (0, 0, 0), "it does not count as a guess"
    world.check_nothing_is_left()
