"""What runs, what is released and what the request is answered with when a guess is right or wrong."""

import numpy as np
import pytest

import dyorc
from dyorc.engine.actions import FormReason
from dyorc.errors import DyOrcError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add, add_one, check, double, scale
from tests.unit.engine.speculative_world import BAD, BOTH, GOOD, PROGRAMS, YES, counts, guarded, is_good, world_with


def test_a_guard_and_the_call_it_guards_start_together_once_their_times_and_outcomes_are_known() -> None:
    world = World([check, double, add_one])
    for program in world.programs:
        world.join(program)
    for _ in range(20):
        world.submit(guarded, GOOD)
        while world.in_flight:
            world.advance(0.1)
            world.finish(execute_s=0.1)
    request_id = world.submit(guarded, GOOD)
    assert [len(world.batches(program)) for program in world.programs] == [1, 1, 0]
    assert world.batches(double)[0].action.reason is FormReason.GUESSED
    world.finish(world.batches(double)[0])
    assert request_id not in world.answers, "the guard has not finished yet"
    world.finish(world.batches(check)[0])
    assert np.array_equal(world.result(request_id), [2, 4])
    assert world.sizes(double) == [1] * 21, "a right guess is not run again"
    world.check_nothing_is_left()


def test_guesses_wait_while_the_time_of_their_program_is_not_known() -> None:
    world = World(PROGRAMS, predictor=YES)
    for program in PROGRAMS:
        world.join(program)
    world.submit(guarded, GOOD)
    assert world.sizes(double) == []
    assert len(world.engine.scheduler.pools["double"].guesses) == 1


def test_a_wrong_guess_that_is_running_is_ignored_and_its_tensors_are_released() -> None:
    world = world_with(is_storing=True)
    request_id = world.submit(guarded, BAD)
    late = world.batches(double)[0]
    world.finish(world.batches(check)[0])
    world.finish(world.batches(add_one)[0])
    assert np.array_equal(world.result(request_id), [1, 3])
    assert len(world.stored) == 1, "its input, which it may still read"
    world.finish(late)
    assert counts(world) == (1, 0, 1)
    world.check_nothing_is_left()


def test_a_wrong_guess_that_has_finished_is_ignored_and_its_tensors_are_released() -> None:
    world = world_with(is_storing=True)
    request_id = world.submit(guarded, BAD)
    world.finish(world.batches(double)[0])
    guessed = max(world.stored)
    world.finish(world.batches(check)[0])
    assert guessed in world.released, "at once, not only when the request ends"
    world.finish(world.batches(add_one)[0])
    assert np.array_equal(world.result(request_id), [1, 3])
    world.check_nothing_is_left()


def test_a_wrong_guess_that_is_waiting_leaves_its_queue() -> None:
    world = world_with(programs=[check, add_one])
    world.submit(guarded, BAD)
    guesses = world.engine.scheduler.pools["double"].guesses
    assert len(guesses) == 1
    world.finish(world.batches(check)[0])
    assert len(guesses) == 0
    world.finish_all()
    world.join(double)
    assert world.sizes(double) == []
    world.check_nothing_is_left()


def test_a_right_guess_that_is_waiting_moves_to_the_queue_of_certain_calls() -> None:
    world = world_with(programs=[check, add_one])
    request_id = world.submit(guarded, GOOD)
    world.finish_all()
    pool = world.engine.scheduler.pools["double"]
    assert (len(pool.queue), len(pool.guesses)) == (1, 0)
    world.join(double)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    assert counts(world) == (0, 0, 0), "it did not run ahead"
    world.check_nothing_is_left()


def test_both_branches_run_ahead_if_both_are_likely() -> None:
    for x, expected in ((GOOD, [2, 4]), (BAD, [1, 3])):
        world = world_with(BOTH)
        request_id = world.submit(guarded, x)
        assert (world.sizes(double), world.sizes(add_one)) == ([1], [1])
        world.finish_all()
        assert np.array_equal(world.result(request_id), expected)
        assert counts(world) == (2, 1, 1)
        world.check_nothing_is_left()


@dyorc.workflow
async def with_shared_start(x: Vector) -> Vector:
    y = scale(x, 3.0)
    if await dyorc.when(check(x), is_good):
        return add(y, double(x))
    return add(y, add_one(x))


def test_calls_before_a_decision_run_once_for_all_guesses() -> None:
    world = world_with(BOTH)
    request_id = world.submit(with_shared_start, BAD)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [1, 9])
    assert (world.sizes(scale), world.sizes(check), world.sizes(add_one), world.sizes(double)) == ([1], [1], [1], [1])
    world.check_nothing_is_left()


@pytest.mark.parametrize("num_finished", range(4))
def test_cancelling_a_request_with_open_guesses_releases_everything(num_finished: int) -> None:
    world = world_with(BOTH, is_storing=True)
    request_id = world.submit(with_shared_start, GOOD)
    for _ in range(num_finished):
        world.finish(world.batches(scale)[0] if world.batches(scale) else world.oldest())
    if request_id in world.answers:
        return
    world.cancel(request_id)
    assert not world.stored or world.in_flight
    world.finish_all()
    assert isinstance(world.answers[request_id], DyOrcError)
    num_run, num_won, num_lost = counts(world)
    assert num_run == num_won + num_lost
    world.check_nothing_is_left()


@pytest.mark.parametrize("x", [GOOD, BAD])
def test_a_decision_is_guessed_until_its_value_has_been_fetched(x: list[float]) -> None:
    world = world_with(BOTH, is_storing=True, is_fetching=False)
    request_id = world.submit(with_shared_start, x)
    world.finish_all()
    assert request_id not in world.answers
    assert (world.sizes(double), world.sizes(add_one)) == ([1], [1])
    world.fetch()
    world.finish_all()
    assert np.array_equal(world.result(request_id), [5, 10] if x is GOOD else [1, 9])
    world.check_nothing_is_left()
