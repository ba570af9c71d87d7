"""Streams are closed by the protocol of async generators, in workflows and in programs."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import Any, cast

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.authoring.stream import Stream
from dyorc.errors import WorkflowError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, double
from tests.unit.engine.yielding_world import count_up, log, sum_up, yielding_world

Number = Int[np.ndarray, ""]


@dyorc.workflow
async def by_aclosing(x: Vector) -> AsyncIterator[Vector]:
    async with aclosing(count_up(x, length=100)) as stream:
        first = x
        async for part in stream:
            first = part
            break
    yield double(first)
    del stream


@dyorc.workflow
async def by_its_reader(x: Vector) -> AsyncIterator[Vector]:
    stream = count_up(x, length=100)
    reader = aiter(stream)
    first = await anext(reader)
    await reader.aclose()
    await cast(Stream, stream).aclose()
    assert [part async for part in reader] == []
    assert [part async for part in stream] == []
    yield double(first)
    del stream


@dyorc.workflow
async def with_another_reader(x: Vector) -> AsyncIterator[Vector]:
    """One loop is closed, and the other goes on."""
    stream = count_up(x, length=5)
    reader, other = aiter(stream), aiter(stream)
    await anext(reader)
    await reader.aclose()
    async for part in other:
        yield part


@dyorc.workflow
async def with_a_loop_that_runs(x: Vector) -> AsyncIterator[Vector]:
    stream = count_up(x, length=5)
    async for part in stream:
        yield part
        await cast(Stream, stream).aclose()


@dyorc.workflow
async def passed_when_closed(x: Vector) -> Vector:
    stream = count_up(x)
    await cast(Stream, stream).aclose()
    return sum_up(stream, x)


def first_parts(workflow: dyorc.Workflow) -> tuple[World, int]:
    world = yielding_world(max_untaken_parts=2)
    return world, world.submit(workflow, [1, 0])


@pytest.mark.parametrize("workflow", [by_aclosing, by_its_reader], ids=lambda workflow: workflow.name)
def test_what_is_closed_is_ended_though_a_name_still_refers_to_it(workflow: dyorc.Workflow) -> None:
    world, request = first_parts(workflow)
    while not world.batches(double):
        world.finish()
    (counting,) = world.batches(count_up)
    assert world.running[counting.action.batch_id].is_cancelled
    world.finish_all()
    assert log[-1] == "closed"
    assert [part.tolist() for part in world.part_values(request)] == [[2, 0]]
    world.check_nothing_is_left()


def test_another_loop_over_the_same_stream_goes_on() -> None:
    world, request = first_parts(with_another_reader)
    world.finish_all()
    assert len(world.part_values(request)) == 5


def test_a_loop_ends_when_its_stream_is_closed() -> None:
    world, request = first_parts(with_a_loop_that_runs)
    world.finish_all()
    assert len(world.part_values(request)) == 1
    assert world.answers[request] == []


def test_a_closed_stream_is_not_passed() -> None:
    world, request = first_parts(passed_when_closed)
    world.finish_all()
    with pytest.raises(WorkflowError, match="got a Stream that was closed"):
        world.result(request)


@dyorc.workflow
async def keeps_a_name(x: Vector) -> Vector:
    stream, last = count_up(x, length=100), x
    async for part in stream:
        last = double(part)
    return last


@dyorc.workflow
async def keeps_none(x: Vector) -> Vector:
    stream, last = count_up(x, length=100), x
    reader = aiter(stream)
    del stream
    async for part in reader:
        last = double(part)
    return last


@pytest.mark.parametrize(("workflow", "is_kept"), [(keeps_a_name, True), (keeps_none, False)], ids=lambda each: str(each))
def test_a_name_of_a_stream_keeps_its_parts(workflow: dyorc.Workflow, is_kept: bool) -> None:
    world = yielding_world(max_untaken_parts=4, is_placing=True)
    request = world.submit(workflow, [1, 0])
    most = 0
    while world.in_flight:
        world.finish([batch for batch in world.in_flight.values() if world.can_go_on(batch)][-1])
        most = max(most, len(world.stored))
    assert request in world.answers
    assert (most > 90) == is_kept
    world.check_nothing_is_left()


@dyorc.program(batched=False)
async def count(x: Number) -> AsyncIterator[Number]:
    for number in range(1000):
        yield x + number


@dyorc.program(batched=False)
async def first_two(numbers: AsyncIterator[Number]) -> Number:
    total = 0
    async with aclosing(cast(Any, numbers)) as stream:
        async for number in stream:
            total += int(number)
            if number == 2:
                break
    return np.array(total + sum([1 async for _ in numbers]))


@dyorc.program(batched=False)
def first_two_plain(numbers: Iterator[Number]) -> Iterator[Number]:
    total = 0
    with closing(cast(Any, numbers)) as stream:
        for number in stream:
            total += int(number)
            if number == 2:
                break
    yield np.array(total + sum(1 for _ in numbers))


@dyorc.workflow
async def total_of_two(x: Number) -> Number:
    return first_two(count(x))


@dyorc.workflow
async def total_of_two_plain(x: Number) -> AsyncIterator[Number]:
    async for part in first_two_plain(count(x)):
        yield part


def test_a_program_closes_a_stream_that_it_reads() -> None:
    assert int(dyorc.run(total_of_two, np.array(1))) == 3
    assert [int(part) for part in dyorc.run(total_of_two_plain, np.array(1))] == [3]
