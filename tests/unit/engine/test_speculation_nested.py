"""Guesses that depend on other guesses: the order in which they commit, and how far ahead they may go."""

from collections.abc import Sequence

import numpy as np
import pytest

import dyorc
from tests.unit.engine.programs import Vector, add_one, check, double, scale
from tests.unit.engine.speculative_world import BAD, GOOD, Says, counts, guarded, guarded_twice, is_good, world_with


@dyorc.workflow
async def guarded_in_task(x: Vector) -> Vector:
    if await dyorc.when(scale(x, 2.0), is_good):
        return guarded(x)
    return add_one(x)


@pytest.mark.parametrize("workflow", [guarded_twice, guarded_in_task])
@pytest.mark.parametrize(
    "order", [(check, scale, double), (scale, check, double), (double, scale, check), (scale, double, check)]
)
def test_nested_guesses_commit_in_any_order(workflow: dyorc.Workflow, order: Sequence[dyorc.Program]) -> None:
    world = world_with()
    request_id = world.submit(workflow, GOOD)
    assert len(world.batches(double)) == 1, "a guess that depends on a guess runs"
    for program in order:
        assert request_id not in world.answers
        world.finish(world.batches(program)[0])
    assert np.array_equal(world.result(request_id), [2, 4])
    assert counts(world) == (2, 2, 0)
    world.check_nothing_is_left()


@pytest.mark.parametrize("first", [check, scale])
def test_a_wrong_outer_guess_takes_the_inner_one_with_it(first: dyorc.Program) -> None:
    world = world_with()
    request_id = world.submit(guarded_twice, BAD)
    world.finish(world.batches(first)[0])
    world.finish_all()
    assert np.array_equal(world.result(request_id), [1, 3])
    assert counts(world)[1] == 0
    world.check_nothing_is_left()


@dyorc.workflow
async def many_guards(x: Vector) -> Vector:
    for factor in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        if not await dyorc.when(scale(x, factor), is_good):
            return add_one(x)
    return double(x)


@pytest.mark.parametrize("max_depth", [1, 2, 4])
def test_guesses_pass_no_more_open_decisions_than_configured(max_depth: int) -> None:
    world = world_with(programs=[add_one, double], max_depth=max_depth)
    world.submit(many_guards, GOOD)
    pool = world.engine.scheduler.pools["scale"]
    assert (len(pool.queue), len(pool.guesses)) == (1, max_depth)


def test_calls_less_likely_than_configured_are_not_guessed() -> None:
    def num_guesses(min_probability: float) -> tuple[int, int]:
        world = world_with(Says({True: 0.5, False: 0.3}), [], min_probability=min_probability, max_depth=6)
        world.submit(guarded_twice, GOOD)
        pools = world.engine.scheduler.pools
        return len(pools["scale"].guesses), len(pools["double"].guesses) + len(pools["add_one"].guesses)

    assert num_guesses(0.6) == (0, 0)
    assert num_guesses(0.4) == (1, 0)
    assert num_guesses(0.3) == (1, 1), "the second program of the branch that is not taken, 0.3"
    assert num_guesses(0.26) == (1, 1)
    assert num_guesses(0.25) == (1, 2)
    assert num_guesses(0.1) == (1, 3)


@dyorc.workflow
async def descend(x: Vector, depth: int) -> Vector:
    return descend(x, depth - 1) if depth else add_one(x)


@dyorc.workflow
async def descends_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return descend(x, 1200)
    return add_one(x)


@pytest.mark.parametrize("x", [GOOD, BAD])
def test_guessed_tasks_may_nest_deeper_than_python_recurses(x: list[float]) -> None:
    world = world_with(programs=[])
    request_id = world.submit(descends_if_good, x)
    world.join(check)
    world.join(add_one)
    world.finish_all()
    assert np.array_equal(world.result(request_id), np.add(x, 1))
    world.check_nothing_is_left()
