"""A tensor is released before its request has ended, once the workflow cannot use it again."""

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.driver import World
from tests.unit.engine.leasing_world import world_with
from tests.unit.engine.programs import Vector, add, add_one, double, send


def blocks_of_holder(world: World, holder: str) -> list[tuple[str, int]]:
    return [block for block in world.stored if block[0] == holder]


@dyorc.workflow
async def long_loop(x: Vector) -> Vector:
    while await dyorc.when(x, lambda v: v.sum() < 1e30):
        x = add(add_one(x), x)
    return x


@pytest.mark.parametrize(("speculation", "most"), [(SpeculationConfig(enabled=False), 3), (SpeculationConfig(), 20)])
def test_a_long_loop_keeps_only_what_it_still_needs(speculation: SpeculationConfig, most: int) -> None:
    world = World([add_one, add], EngineConfig(speculation=speculation), is_placing=True)
    for program in (add_one, add):
        world.join(program)
    world.submit(long_loop, [1, 1])
    peak = 0
    while world.in_flight:
        world.finish()
        peak = max(peak, len(world.stored))
    assert len(world.history) > 150
    assert peak <= most
    world.check_nothing_is_left()


def test_a_tensor_that_the_workflow_may_still_pass_on_is_kept() -> None:
    @dyorc.workflow
    async def returns_to_it(x: Vector) -> Vector:
        first = add_one(x)
        if await dyorc.when(double(first), lambda v: v.sum() > 1e6):
            return x
        return add(first, first)

    world = world_with(add_one, double, add)
    world.submit(returns_to_it, [1, 1])
    while world.in_flight:
        world.finish()
    assert (world.sizes(add_one), world.sizes(add)) == ([1], [1])
    world.check_nothing_is_left()


def test_a_tensor_that_another_outcome_of_a_guessed_decision_needs_is_kept() -> None:
    @dyorc.workflow
    async def forgets_under_a_guess(x: Vector) -> Vector:
        made, other = add_one(x), add(x, x)
        if await dyorc.when(send(x), lambda v: v.sum() > 1e6, likely=True):
            del made
            return double(other)
        return double(made)

    world = World([add_one, add, send, double], is_placing=True)
    for program in (add_one, add, send):
        world.join(program)
    world.submit(forgets_under_a_guess, [1, 1])
    world.finish(world.batches(add_one)[0])
    assert len(world.engine.scheduler.pools["double"].guesses) == 0
    world.finish(world.batches(add)[0])
    assert len(world.engine.scheduler.pools["double"].guesses) == 1
    assert not world.released
    world.finish_all()
    world.join(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_results_of_programs_that_must_not_be_repeated_and_inputs_are_kept_to_the_end() -> None:
    @dyorc.workflow
    async def forgets(x: Vector) -> Vector:
        y = send(add_one(x))
        y = add_one(y)
        return add_one(y)

    world = world_with(add_one, send, is_storing=True)
    world.submit(forgets, [1, 1])
    for _ in range(3):
        world.finish()
    assert len(blocks_of_holder(world, "")) == 1
    assert len(blocks_of_holder(world, "send#1")) == 1
    assert len(blocks_of_holder(world, "add_one#0")) == 1
    world.finish_all()
    world.check_nothing_is_left()


def test_the_check_of_determinism_needs_no_released_tensor() -> None:
    world = world_with(add_one, add, double)
    for _ in range(4):
        world.submit(long_loop, [1e28, 1e28])
        world.finish_all()
    assert all(not isinstance(answer, Exception) for answer in world.answers.values())
    world.check_nothing_is_left()
