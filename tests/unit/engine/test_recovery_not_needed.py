"""Lost tensors are not computed again for cancelled requests, for guesses, or once nobody needs them."""

import numpy as np

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.lossy_world import one_after_the_other, restart, world_with
from tests.unit.engine.programs import Vector, add, add_one, check, double, put


def test_a_cancelled_request_stops_restoring() -> None:
    world = world_with(double)
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    world.leave("add_one")
    assert len(world.engine.scheduler.pools["add_one"].queue) == 1
    world.cancel(1)
    world.check_nothing_is_left()
    assert len(world.engine.scheduler.pools["add_one"].queue) == 0


def test_a_result_that_is_no_longer_needed_is_not_restored() -> None:
    @dyorc.workflow
    async def loses_interest(x: Vector) -> Vector:
        y = add_one(x)
        double(y)
        return await check(x)

    world = world_with(double)
    world.submit(loses_interest, [1, 1])
    world.finish(world.batches(add_one)[0])
    world.leave("add_one")
    assert len(world.engine.scheduler.pools["add_one"].queue) == 1
    world.finish()
    assert np.array_equal(world.result(1), [1, 1])
    assert len(world.engine.scheduler.pools["add_one"].queue) == 0
    world.check_nothing_is_left()


def test_a_guess_whose_input_was_lost_waits_until_it_is_certain() -> None:
    @dyorc.workflow
    async def guarded(x: Vector) -> Vector:
        y = add_one(x)
        if await dyorc.when(check(x), lambda v: v.sum() >= 0, likely=True):
            return double(y)
        return x

    world = world_with(double, config=EngineConfig(speculation=SpeculationConfig(margin=0, max_wasted_ratio=0.9)))
    world.submit(guarded, [1, 1])
    world.finish(world.batches(add_one)[0])
    assert len(world.engine.scheduler.pools["double"].guesses) == 1
    restart(world, add_one)
    assert len(world.engine.scheduler.pools["double"].guesses) == 0
    assert world.sizes(add_one) == [1]
    world.finish(world.batches(check)[0])
    assert world.sizes(add_one) == [1, 1]
    world.join(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_guess_that_becomes_ready_with_a_lost_input_waits_until_it_is_certain() -> None:
    @dyorc.workflow
    async def guarded(x: Vector) -> Vector:
        y, z = add_one(x), double(x)
        if await dyorc.when(check(x), lambda v: v.sum() >= 0, likely=True):
            return add(y, z)
        return x

    world = world_with()
    world.submit(guarded, [1, 1])
    world.finish(world.batches(add_one)[0])
    restart(world, add_one)
    world.finish(world.batches(double)[0])
    assert world.sizes(add_one) == [1]
    world.finish(world.batches(check)[0])
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])


def test_a_guess_does_not_restore_its_lost_input() -> None:
    @dyorc.workflow
    async def guarded(x: Vector) -> Vector:
        y, z = add_one(x), double(x)
        if await dyorc.when(check(x), lambda v: v.sum() >= 100, likely=True):
            return add(y, z)
        return x

    world = world_with(config=EngineConfig())
    world.submit(guarded, [1, 1])
    world.finish(world.batches(add_one)[0])
    restart(world, add_one)
    world.finish(world.batches(double)[0])
    world.finish_all()
    assert np.array_equal(world.result(1), [1, 1])
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_a_result_that_its_task_no_longer_needs_is_not_restored_though_the_request_goes_on() -> None:
    @dyorc.workflow
    async def inner(x: Vector, y: Vector) -> Vector:
        double(y)
        return await check(x)

    @dyorc.workflow
    async def outer(x: Vector) -> Vector:
        return put(inner(x, add_one(x)))

    world = world_with(double)
    world.submit(outer, [1, 1])
    world.finish(world.batches(add_one)[0])
    world.leave("add_one")
    assert len(world.engine.scheduler.pools["add_one"].queue) == 1
    world.finish(world.batches(check)[0])
    assert len(world.engine.scheduler.pools["add_one"].queue) == 0
    assert 1 not in world.answers
    world.finish_all()
    world.check_nothing_is_left()
