"""When and in which order the parts of a streaming workflow are sent, and when its end comes."""

from collections.abc import AsyncIterator

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from tests.unit.engine.programs import Vector, add_one, check, double, extremes, increment_twice, is_large
from tests.unit.engine.streaming_world import ALWAYS, finish_all, guarded, log, take_all, world_with


@dyorc.workflow
async def twice(x: Vector) -> AsyncIterator[Vector]:
    y = add_one(x)
    yield y
    log.append("went on")
    yield double(y)


def test_a_part_is_sent_as_soon_as_its_tensors_are_there_and_the_workflow_does_not_wait_for_them() -> None:
    world = world_with(max_determinism_checks=0)
    request = world.submit(twice, [1, 2], explain=True)
    assert log == ["went on"]
    assert world.num_parts[request] == 0
    world.finish()
    assert world.num_parts[request] == 1
    world.finish()
    assert take_all(world, request) == [[2, 3], [4, 6]]
    assert world.answers[request] == []
    assert [step["index"] for step in world.stories[request].steps() if step["event"] == "part"] == [0, 1]
    world.check_nothing_is_left()


def test_parts_keep_their_order_whichever_is_ready_first() -> None:
    @dyorc.workflow
    async def slow_first(x: Vector) -> AsyncIterator[Vector]:
        yield add_one(x)
        yield double(x)
        yield x

    world = world_with()
    request = world.submit(slow_first, [1, 2])
    world.finish(world.batches(double)[0])
    assert world.num_parts[request] == 0
    world.finish()
    assert world.num_parts[request] == 3
    assert take_all(world, request) == [[2, 3], [2, 4], [1, 2]]
    world.check_nothing_is_left()


def test_the_end_comes_when_all_parts_have_been_taken() -> None:
    world = world_with()
    request = world.submit(twice, [1, 2])
    world.finish_all()
    world.take_part(request)
    assert request not in world.answers
    world.take_part(request)
    assert world.answers[request] == []


def test_inputs_constants_fields_and_results_of_workflows_can_be_parts() -> None:
    @dyorc.workflow
    async def mixed(x: Vector) -> AsyncIterator[Vector]:
        yield x
        yield np.array([5, 6], np.float32)
        yield x[::-1]
        yield increment_twice(x)
        ends = extremes(x)
        if await dyorc.when(ends["low"], lambda low: bool(low > 0)):
            yield [0, float(await ends["high"])]

    world = world_with()
    request = world.submit(mixed, [1, 2])
    assert finish_all(world, request) == [[1, 2], [5, 6], [2, 1], [3, 4], [0, 2]]
    world.check_nothing_is_left()


def test_parts_are_grouped_as_declared() -> None:
    @dyorc.workflow
    async def ends(x: Vector) -> AsyncIterator[tuple[Vector, Float[np.ndarray, ""]]]:
        yield x, extremes(x)["low"]

    world = world_with(is_taking=True)
    request = world.submit(ends, [1, 2])
    world.finish_all()
    ((whole, low),) = world.part_values(request)
    assert (whole.tolist(), low) == ([1, 2], 1)


def test_a_stream_without_parts_ends() -> None:
    @dyorc.workflow
    async def nothing(x: Vector) -> AsyncIterator[Vector]:
        if await dyorc.when(x, is_large):
            yield x

    world = world_with()
    request = world.submit(nothing, [1, 2])
    assert world.answers[request] == []
    world.check_nothing_is_left()


@pytest.mark.parametrize(("x", "last"), [([10.0, 20.0], [11.0, 21.0]), ([1.0, 2.0], [2.0, 4.0])], ids=["right", "wrong"])
def test_a_part_on_a_guess_is_held_back_until_it_is_certain(x: list[float], last: list[float]) -> None:
    world = world_with(ALWAYS)
    request = world.submit(guarded, x)
    world.finish(world.batches(add_one)[0])  # the guess
    assert world.num_parts[request] == 1
    assert take_all(world, request) == [x]
    assert finish_all(world, request) == [x, last]
    assert world.answers[request] == []
    assert world.engine.speculator.num_speculations
    world.check_nothing_is_left()


@dyorc.workflow
async def goes_on(x: Vector) -> AsyncIterator[Vector]:
    if await dyorc.when(check(x), is_large, likely=True):
        yield x
        await add_one(x)
        await double(x)
    yield x


def test_a_guessed_part_is_sent_as_soon_as_it_is_certain_whatever_its_workflow_waits_for() -> None:
    world = world_with(ALWAYS)
    request = world.submit(goes_on, [10, 20])
    world.finish(world.batches(add_one)[0])
    assert not world.num_parts[request]
    world.finish(world.batches(check)[0])
    assert world.in_flight
    assert world.num_parts[request] == 1


def test_a_call_after_a_guessed_part_is_a_guess() -> None:
    world = world_with(ALWAYS)
    world.submit(goes_on, [10, 20])
    (batch,) = world.batches(add_one)
    (call,) = world.engine.scheduler.batches[batch.action.batch_id].calls
    assert call.is_guess
    assert call.segment.probability() < 1
