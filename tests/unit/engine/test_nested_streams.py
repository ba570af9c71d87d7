"""Workflows that yield, called by other workflows: their parts are read like those of programs."""

from collections.abc import AsyncIterator

import pytest

import dyorc
from dyorc.errors import ProgramError, WorkflowError
from tests.unit.engine.programs import Vector, add_one, check, double, is_large
from tests.unit.engine.yielding_world import ALWAYS, count_up, log, passed_on, send, yielding_world


@dyorc.workflow
async def three(x: Vector) -> AsyncIterator[Vector]:
    for number in range(3):
        log.append(f"yields {number}")
        x = add_one(x)
        yield x


@dyorc.workflow
async def doubled(x: Vector) -> AsyncIterator[Vector]:
    async for part in three(x):
        yield double(part)


@dyorc.workflow
async def endless(x: Vector) -> AsyncIterator[Vector]:
    number = 0
    while True:
        log.append(f"yields {number}")
        number += 1
        yield x


def test_parts_pass_through_workflows_to_the_client() -> None:
    world = yielding_world()
    request = world.submit(doubled, [1, 2])
    world.finish_all()
    assert [part.tolist() for part in world.part_values(request)] == [[4, 6], [6, 8], [8, 10]]
    assert world.answers[request] == []
    world.check_nothing_is_left()


def test_parts_of_a_program_pass_through_two_workflows() -> None:
    @dyorc.workflow
    async def above(x: Vector) -> Vector:
        last = x
        async for part in passed_on(x):
            last = double(part)
        return last

    for stored in ({}, {"is_storing": True}, {"is_placing": True}):
        world = yielding_world(**stored)
        request = world.submit(above, [1, 2])
        world.finish_all()
        assert world.result(request).tolist() == [8, 10]
        world.check_nothing_is_left()


def test_a_part_is_read_before_the_workflow_below_has_ended() -> None:
    @dyorc.workflow
    async def first(x: Vector) -> Vector:
        async for part in endless(x):
            return double(part)
        return x

    world = yielding_world(max_untaken_parts=2)
    request = world.submit(first, [1, 2])
    world.finish_all()
    assert world.result(request).tolist() == [2, 4]
    assert len(log) <= 4
    world.check_nothing_is_left()


def test_a_workflow_is_at_most_so_many_parts_ahead_of_its_furthest_reader() -> None:
    @dyorc.workflow
    async def slow(x: Vector) -> AsyncIterator[Vector]:
        async for part in endless(x):
            yield part

    world = yielding_world(max_untaken_parts=2, is_taking=False)
    request = world.submit(slow, [1, 2])
    assert world.num_parts[request] == 2
    for number in range(5):
        world.take_part(request)
        assert len(log) <= number + 7
    world.cancel(request)
    world.check_nothing_is_left()


def test_an_error_comes_after_the_parts_before_it() -> None:
    @dyorc.workflow
    async def checks(x: Vector) -> AsyncIterator[Vector]:
        yield check(x)
        yield check(add_one(x))
        yield check(x[::-1])
        yield x

    @dyorc.workflow
    async def above(x: Vector) -> AsyncIterator[Vector]:
        try:
            async for part in checks(x):
                yield part
        except dyorc.ProgramError:
            yield double(x)

    @dyorc.workflow
    async def collecting(x: Vector) -> Vector:
        return (await dyorc.collect(checks(x)))[0]

    @dyorc.workflow
    async def raising(x: Vector) -> AsyncIterator[Vector]:
        yield x
        raise RuntimeError("no more")

    @dyorc.workflow
    async def below(x: Vector) -> Vector:
        return (await dyorc.collect(raising(x)))[0]

    world = yielding_world()
    request, failing, broken = (world.submit(each, [-1, -1]) for each in (above, collecting, below))
    world.finish_all()
    assert [part.tolist() for part in world.part_values(request)] == [[-2, -2]]
    with pytest.raises(ProgramError, match="a number is negative"):
        world.result(failing)
    with pytest.raises(WorkflowError, match="no more"):
        world.result(broken)
    world.check_nothing_is_left()


@pytest.mark.parametrize("x", [[10, 20], [1, 2]])
def test_nothing_that_rests_on_a_guess_is_passed_on(x: list[float]) -> None:
    @dyorc.workflow
    async def guessing(x: Vector) -> AsyncIterator[Vector]:
        if await dyorc.when(add_one(x), is_large, likely=True):
            yield x
            yield double(x)
        else:
            yield add_one(x)

    @dyorc.workflow
    async def above(x: Vector) -> AsyncIterator[Vector]:
        if await dyorc.when(double(x), is_large, likely=True):
            async for part in guessing(x):
                yield part
        else:
            yield x

    world = yielding_world(ALWAYS)
    request = world.submit(above, x)
    world.finish_all()
    expected = [[10, 20], [20, 40]] if x == [10, 20] else [[1, 2]]
    assert [part.tolist() for part in world.part_values(request)] == expected
    world.check_nothing_is_left()


def test_effects_below_a_stream_that_nobody_reads_all_happen() -> None:
    @dyorc.workflow
    async def sending(x: Vector) -> AsyncIterator[Vector]:
        for _ in range(5):
            yield send(x)

    @dyorc.workflow
    async def forgetful(x: Vector) -> Vector:
        sending(x)
        return add_one(x)

    world = yielding_world(max_untaken_parts=1)
    request = world.submit(forgetful, [1, 2])
    world.finish_all()
    assert world.result(request).tolist() == [2, 3]
    assert sum(world.sizes(send)) == 5
    world.check_nothing_is_left()


def test_streams_are_read_side_by_side() -> None:
    @dyorc.workflow
    async def zipped(x: Vector) -> AsyncIterator[Vector]:
        others = aiter(three(x))
        async for part in count_up(x):
            yield double(part)
            yield await anext(others)

    world = yielding_world()
    request = world.submit(zipped, [1, 2])
    world.finish_all()
    assert [part.tolist() for part in world.part_values(request)] == [[2, 4], [2, 3], [4, 6], [3, 4], [6, 8], [4, 5]]
    world.check_nothing_is_left()
