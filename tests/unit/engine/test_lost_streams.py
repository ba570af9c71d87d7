"""Streams whose replicas are lost: they start again, what came before is compared and skipped, and lost parts are made again."""

from collections.abc import AsyncIterator, Iterator

import pytest

import dyorc
from dyorc.errors import EffectLostError, StreamDivergedError
from tests.unit.engine.programs import Vector, add, add_one, double
from tests.unit.engine.yielding_world import announce, count_up, log, passed_on, running_sum, yielding_world

seen: list[int] = []


@dyorc.program(batched=False)
def count_differently(x: Vector) -> Iterator[Vector]:
    """Yields other parts each time."""
    seen.append(1)
    for number in range(3):
        yield x + number * len(seen)


@dyorc.program(batched=False)
def ever_shorter(x: Vector) -> Iterator[Vector]:
    """Yields one part less each time."""
    seen.append(1)
    for number in range(4 - len(seen)):
        yield x + number


@pytest.mark.parametrize("num_before", range(4))
def test_a_stream_goes_on_after_its_replica_was_lost(num_before: int) -> None:
    world = yielding_world(is_placing=True)
    world.join(count_up)
    request = world.submit(passed_on, [1, 2])
    for _ in range(num_before):
        world.finish(world.batches(count_up)[0])
    batch = world.batches(count_up)[0]
    world.leave(batch.action.replica_id)
    world.finish_all()
    assert [part.tolist() for part in world.part_values(request)] == [[2, 3], [3, 4], [4, 5]]
    world.check_nothing_is_left()


def test_parts_that_come_again_must_be_equal() -> None:
    @dyorc.workflow
    async def reading(x: Vector) -> AsyncIterator[Vector]:
        async for part in count_differently(x):
            yield part

    seen.clear()
    world = yielding_world()
    world.add(count_differently)
    world.join(count_differently)
    world.join(count_differently)
    request = world.submit(reading, [1, 2])
    for _ in range(2):
        world.finish(world.batches(count_differently)[0])
    world.leave(world.batches(count_differently)[0].action.replica_id)
    world.finish_all()
    with pytest.raises(StreamDivergedError, match=r"yielded another part 1 than before; it has to yield the same"):
        world.result(request)
    assert not StreamDivergedError.retryable
    assert [part.tolist() for part in world.part_values(request)] == [[1, 2], [2, 3]]
    world.check_nothing_is_left()


def test_a_stream_with_an_effect_is_not_started_again() -> None:
    @dyorc.workflow
    async def announcing(x: Vector) -> AsyncIterator[Vector]:
        async for part in announce(x):
            yield part

    world = yielding_world()
    request = world.submit(announcing, [1, 2])
    world.finish()
    world.leave(world.batches(announce)[0].action.replica_id)
    with pytest.raises(EffectLostError):
        world.result(request)
    assert [part.tolist() for part in world.part_values(request)] == [[1, 2]]
    world.check_nothing_is_left()


@dyorc.workflow
async def late(x: Vector) -> Vector:
    """Uses all parts once the stream has ended and another program has run."""
    parts = [part async for part in count_up(x)]
    y = double(x)
    await y
    for part in parts:
        y = add(y, part)
    return y


@pytest.mark.parametrize("num_lost", [1, 2])
def test_lost_parts_are_made_again_together_when_they_are_needed(num_lost: int) -> None:
    world = yielding_world(is_placing=True, max_attempts=num_lost + 1)
    world.add(add)
    world.join(add)
    request = world.submit(late, [1, 2])
    while world.batches(count_up):
        world.finish(world.batches(count_up)[0])
    for _ in range(num_lost):
        world.leave(next(name for name in world.engine.scheduler.replicas if name.startswith("count_up")))
        world.join(count_up)
    world.finish_all()
    assert world.result(request).tolist() == [8, 13]
    assert len(world.sizes(count_up)) == 2, "once for all lost parts"
    world.check_nothing_is_left()


def test_a_repeated_call_is_ended_after_the_last_part_that_is_needed() -> None:
    @dyorc.workflow
    async def second(x: Vector) -> Vector:
        stream = count_up(x, length=50)
        parts = aiter(stream)
        await anext(parts)
        part = await anext(parts)
        await double(x)
        async for _ in stream:
            pass
        return add_one(part)

    world = yielding_world(is_placing=True)
    request = world.submit(second, [1, 2])
    world.finish_all()
    log.clear()
    assert world.result(request).tolist() == [3, 4]
    world.check_nothing_is_left()


def test_a_reader_whose_replica_is_lost_is_fed_from_the_start_again() -> None:
    @dyorc.workflow
    async def sums(x: Vector) -> AsyncIterator[Vector]:
        async for part in running_sum(count_up(x)):
            yield part

    for lost in (running_sum, count_up):
        world = yielding_world(is_placing=True)
        world.join(lost)
        request = world.submit(sums, [1, 2])
        for _ in range(2):
            world.finish(world.batches(count_up)[0])
            world.finish(world.batches(running_sum)[0])
        world.leave(world.batches(lost)[0].action.replica_id)
        world.finish_all()
        assert [part.tolist() for part in world.part_values(request)] == [[1, 2], [3, 5], [6, 9]]
        world.check_nothing_is_left()


def test_a_stream_that_is_shorter_when_it_runs_again_fails_those_who_need_its_lost_parts() -> None:
    @dyorc.workflow
    async def using(x: Vector) -> Vector:
        parts = [part async for part in ever_shorter(x)]
        await double(x)
        return add_one(parts[-1])

    seen.clear()
    world = yielding_world(is_placing=True)
    world.add(ever_shorter)
    world.join(ever_shorter)
    request = world.submit(using, [1, 2])
    while world.batches(ever_shorter):
        world.finish(world.batches(ever_shorter)[0])
    world.leave(next(name for name in world.engine.scheduler.replicas if name.startswith("ever")))
    world.join(ever_shorter)
    world.finish_all()
    with pytest.raises(StreamDivergedError, match="yielded fewer parts than before"):
        world.result(request)
    world.check_nothing_is_left()


def test_parts_of_a_nested_workflow_are_restored_from_what_it_yielded() -> None:
    @dyorc.workflow
    async def keeping(x: Vector) -> Vector:
        parts = [part async for part in passed_on(x)]
        y = double(x)
        await y
        return add(y, parts[-1])

    world = yielding_world(is_placing=True)
    world.add(add)
    world.join(add)
    request = world.submit(keeping, [1, 2])
    while world.batches(count_up) or world.batches(add_one):
        world.finish((world.batches(count_up) or world.batches(add_one))[0])
    for name in [each for each in world.engine.scheduler.replicas if each.startswith(("count_up", "add_one"))]:
        world.leave(name)
    world.join(count_up)
    world.join(add_one)
    world.finish_all()
    assert world.result(request).tolist() == [6, 9]
    world.check_nothing_is_left()
