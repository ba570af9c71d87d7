"""What happens to a request when one of its guesses fails, loses its replica or exceeds a limit."""

import numpy as np
import pytest

import dyorc
from dyorc.engine.guessing.prediction import Predictor
from dyorc.errors import ProgramError, WorkflowLimitError
from tests.unit.engine.programs import Vector, add_one, check, double, scale
from tests.unit.engine.speculative_world import BAD, BOTH, GOOD, SURE_YES, YES, guarded, is_good, warm, world_with


def test_a_guess_that_fails_does_not_fail_its_request() -> None:
    world = world_with()
    request_id = world.submit(guarded, BAD)
    world.fail(world.batches(double)[0])
    world.finish_all()
    assert np.array_equal(world.result(request_id), [1, 3])
    world.check_nothing_is_left()


def test_a_guess_that_failed_runs_again_once_it_is_certain() -> None:
    world = world_with()
    request_id = world.submit(guarded, GOOD)
    world.fail(world.batches(double)[0])
    assert len(world.batches(double)) == 0, "a guess is not tried again"
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    assert world.sizes(double) == [1, 1]
    world.check_nothing_is_left()


def test_a_guess_whose_replica_was_lost_runs_again_once_it_is_certain() -> None:
    world = world_with(limits={"max_attempts": 2})
    request_id = world.submit(guarded, GOOD)
    world.leave(world.batches(double)[0].action.replica_id)
    world.join(double)
    assert world.sizes(double) == [1]
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    world.check_nothing_is_left()


@dyorc.workflow
async def checks_if_good(x: Vector) -> Vector:
    if await dyorc.when(scale(x, 1.0), is_good):
        return check([-1, 0])
    return add_one(x)


@dyorc.workflow
async def checked(x: Vector) -> Vector:
    return check(x)


def test_a_guess_that_fails_its_batch_costs_the_certain_calls_one_more_attempt() -> None:
    world = world_with(programs=[scale, add_one])
    warm(world, check)
    wrong = world.submit(checks_if_good, BAD)
    fine = world.submit_all(checked, [[1, 1], [2, 2], [3, 3]])
    world.join(check)
    assert world.batches(check)[0].column() == [[1, 1], [2, 2], [3, 3], [-1, 0]]
    while world.batches(check):
        world.finish(world.batches(check)[0])
    assert world.sizes(check) == [4, 1, 2]
    assert [world.result(request_id)[0] for request_id in fine] == [1, 2, 3]
    world.finish_all()
    assert np.array_equal(world.result(wrong), [1, 3])
    world.check_nothing_is_left()


def test_a_failed_guess_that_turns_out_to_be_needed_fails_its_request() -> None:
    world = world_with()
    request_id = world.submit(checks_if_good, GOOD)
    world.finish_all()
    with pytest.raises(ProgramError, match="a number is negative"):
        world.result(request_id)
    world.check_nothing_is_left()


@dyorc.workflow
async def endless_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        while True:
            x = add_one(x)
    return double(x)


@pytest.mark.parametrize("predictor", [YES, BOTH, SURE_YES])
def test_a_wrong_guess_that_makes_too_many_calls_does_no_harm(predictor: Predictor) -> None:
    world = world_with(predictor, limits={"max_calls_per_request": 20})
    request_id = world.submit(endless_if_good, BAD)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [0, 4])
    world.check_nothing_is_left()


def test_a_right_guess_that_makes_too_many_calls_fails_its_request() -> None:
    world = world_with(limits={"max_calls_per_request": 20})
    request_id = world.submit(endless_if_good, GOOD)
    world.finish_all()
    with pytest.raises(WorkflowLimitError):
        world.result(request_id)
    world.check_nothing_is_left()


@dyorc.workflow
async def seven(x: Vector) -> Vector:
    for _ in range(7):
        x = add_one(x)
    return x


@dyorc.workflow
async def seven_either_way(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return seven(x)
    return seven(x[::-1])


@pytest.mark.parametrize("x", [GOOD, BAD])
def test_calls_of_a_guessed_task_do_not_count_until_they_are_certain(x: list[float]) -> None:
    """Each branch makes 9 calls; both together exceed the limit."""
    world = world_with(BOTH, limits={"max_calls_per_request": 12})
    request_id = world.submit(seven_either_way, x)
    world.finish_all()
    assert np.array_equal(world.result(request_id), np.add(x if x is GOOD else x[::-1], 7))
    world.check_nothing_is_left()


@dyorc.workflow
async def three_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return scale(scale(scale(x, 1.0), 1.0), 1.0)
    return x


@dyorc.workflow
async def survives_the_limit(x: Vector) -> Vector:
    y = three_if_good(x)
    x = await add_one(x)
    for _ in range(3):
        x = add_one(x)
    try:
        await y
    except WorkflowLimitError:
        return await x
    return await x


def test_a_request_whose_guesses_take_it_over_its_limit_may_go_on() -> None:
    world = world_with(YES, limits={"max_calls_per_request": 7})
    request_id = world.submit(survives_the_limit, GOOD)
    world.finish(world.batches(add_one)[0])
    world.finish(world.batches(check)[0])
    world.finish_all()
    assert np.array_equal(world.result(request_id), [5, 6])
    world.check_nothing_is_left()


undeployed = double.with_options(name="undeployed")


@dyorc.workflow
async def undeployed_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return undeployed(x)
    return add_one(x)


def test_a_wrong_guess_may_call_a_program_that_is_not_deployed() -> None:
    world = world_with()
    request_id = world.submit(undeployed_if_good, BAD)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [1, 3])
    world.check_nothing_is_left()
