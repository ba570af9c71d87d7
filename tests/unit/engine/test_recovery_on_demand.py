"""A lost tensor is computed again as soon as somebody needs it, and not before."""

import numpy as np
import pytest

import dyorc
from dyorc.errors import DeadlineError
from tests.unit.engine.lossy_world import one_after_the_other, restart, world_with
from tests.unit.engine.programs import Vector, add, add_one, cascade, check, double


def test_a_queued_call_whose_input_was_lost_waits_until_it_is_computed_again() -> None:
    world = world_with(double)
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    assert len(world.engine.scheduler.pools["double"].queue) == 1
    restart(world, add_one)
    assert len(world.engine.scheduler.pools["double"].queue) == 0
    assert world.sizes(add_one) == [1, 1]
    world.join(double)
    assert not world.batches(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_nothing_is_computed_again_before_it_is_needed() -> None:
    @dyorc.workflow
    async def joined(x: Vector) -> Vector:
        return add(add_one(x), double(x))

    world = world_with()
    world.submit(joined, [1, 1])
    world.finish(world.batches(add_one)[0])
    restart(world, add_one)
    assert not world.batches(add_one)
    world.finish(world.batches(double)[0])
    assert len(world.batches(add_one)) == 1
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_value_that_the_workflow_has_read_stays_valid() -> None:
    @dyorc.workflow
    async def looks(x: Vector) -> Vector:
        y = add_one(x)
        before = await y
        await double(x)
        return before + await y

    world = world_with()
    world.submit(looks, [1, 1])
    world.finish(world.batches(add_one)[0])
    restart(world, add_one)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_a_value_that_was_lost_before_it_was_asked_for_is_computed_again_first() -> None:
    @dyorc.workflow
    async def looks_late(x: Vector) -> Vector:
        y = add_one(x)
        await double(x)
        return await y

    world = world_with(is_fetching=False)
    world.submit(looks_late, [1, 1])
    world.finish(world.batches(add_one)[0])
    world.finish(world.batches(double)[0])
    restart(world, add_one)
    world.fetch()
    assert not world.fetches
    world.finish_all()
    world.fetch()
    assert np.array_equal(world.result(1), [2, 2])
    world.check_nothing_is_left()


def test_a_value_that_was_lost_while_it_was_fetched_is_computed_again_and_fetched_again() -> None:
    world = world_with(is_fetching=False)
    world.submit(cascade, [1, 1])
    world.finish()
    restart(world, add_one)
    world.fetch()
    assert world.sizes(add_one) == [1, 1]
    world.finish_all()
    world.fetch()
    world.finish_all()
    assert np.array_equal(world.result(1), [2, 2])
    world.check_nothing_is_left()


def test_an_answer_that_was_lost_before_it_was_taken_is_computed_and_sent_again() -> None:
    world = world_with(is_taking=False)
    world.submit(one_after_the_other, [1, 1])
    world.finish_all()
    restart(world, double)
    world.take()
    assert world.sizes(add_one) == [1, 1], "the input of the lost answer had been released"
    assert not world.untaken
    world.cancel(1)
    world.finish_all()
    assert world.sizes(double) == [1, 1]
    world.take()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_an_answer_of_a_task_is_restored_through_its_result() -> None:
    @dyorc.workflow
    async def outer(x: Vector) -> Vector:
        y = one_after_the_other(x)
        await check(x)
        return y

    world = world_with(is_taking=False)
    world.submit(outer, [1, 1])
    world.finish(world.batches(add_one)[0])
    world.finish(world.batches(double)[0])
    restart(world, double)
    world.finish(world.batches(check)[0])
    assert not world.untaken
    assert len(world.batches(double)) + len(world.batches(add_one)) == 1
    world.finish_all()
    world.take()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_deadline_passes_while_an_answer_is_computed_again() -> None:
    @dyorc.workflow
    async def outer(x: Vector) -> Vector:
        y = add_one(x)
        await double(x)
        return y

    world = world_with()
    world.submit(outer, [1, 1], deadline_s=10.0)
    world.finish(world.batches(add_one)[0])
    world.leave("add_one")
    world.finish(world.batches(double)[0])
    assert 1 not in world.answers
    world.advance(11.0)
    with pytest.raises(DeadlineError):
        world.result(1)
    world.check_nothing_is_left()
