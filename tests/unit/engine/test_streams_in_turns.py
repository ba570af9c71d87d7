"""Two streams of a program that runs one call at a time: read in turns, the first makes way for the second."""

from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig
from dyorc.errors import ProgramError
from tests.unit.engine.driver import World

Number = Int[np.ndarray, ""]
NUM_PARTS = 7


@dyorc.program(batched=False)
def numbers(start: Number, more: int = 0) -> Iterator[Number]:
    for number in range(NUM_PARTS):
        yield start + more + number


@dyorc.program(batched=False, max_ongoing=4)
async def halved(values: AsyncIterator[Number]) -> AsyncIterator[Number]:
    async for value in values:
        yield value // 2


@dyorc.program
def doubled(x: Int[np.ndarray, " batch"]) -> Int[np.ndarray, " batch"]:
    return 2 * x


@dyorc.workflow
async def in_turns(start: Number) -> AsyncIterator[Number]:
    first, second = aiter(numbers(start)), aiter(numbers(start, more=100))
    for _ in range(NUM_PARTS):
        yield await anext(first)
        yield await anext(second)


@dyorc.workflow
async def late_in_turns(start: Number) -> AsyncIterator[Number]:
    """The second stream gets its input only when the first has no credit left."""
    first, second = aiter(numbers(start)), aiter(numbers(doubled(doubled(start))))
    for _ in range(NUM_PARTS):
        yield await anext(second)
        yield await anext(first)


@dyorc.workflow
async def by_another(start: Number) -> AsyncIterator[Number]:
    """What reads the streams whole is read in turns."""
    first, second = aiter(halved(numbers(start))), aiter(halved(numbers(start, more=100)))
    for _ in range(NUM_PARTS):
        yield await anext(first)
        yield await anext(second)


@dyorc.workflow
async def one_by_one(start: Number) -> AsyncIterator[Number]:
    first, second = numbers(start), numbers(start, more=100)
    async for number in first:
        yield number
    async for number in second:
        yield number


EXPECTED = {
    in_turns: [number for at in range(NUM_PARTS) for number in (at, 100 + at)],
    late_in_turns: [number for at in range(NUM_PARTS) for number in (at, at)],
    by_another: [number for at in range(NUM_PARTS) for number in (at // 2, (100 + at) // 2)],
    one_by_one: [start + at for start in (0, 100) for at in range(NUM_PARTS)],
}


@pytest.mark.parametrize("workflow", EXPECTED)
@pytest.mark.parametrize("max_untaken_parts", [1, 2])
def test_both_come_to_their_end(workflow: Workflow, max_untaken_parts: int) -> None:
    world = World([numbers, halved, doubled], EngineConfig(max_untaken_parts=max_untaken_parts))
    for program in world.programs:
        world.join(program)
    request = world.submit(workflow, np.array(0))
    world.finish_all()
    assert [int(value) for value in world.part_values(request)] == EXPECTED[workflow]
    world.check_nothing_is_left()


@pytest.mark.parametrize("workflow", EXPECTED)
def test_also_in_this_process(workflow: Workflow) -> None:
    assert [int(value) for value in dyorc.run(workflow, np.array(0))] == EXPECTED[workflow]


def test_one_that_is_read_goes_no_further_for_one_that_is_not() -> None:
    world = World([numbers, halved, doubled], EngineConfig(max_untaken_parts=1), is_taking=False)
    for program in world.programs:
        world.join(program)
    request = world.submit(one_by_one, np.array(0))
    while world.in_flight and any(world.can_go_on(batch) for batch in world.in_flight.values()):
        world.finish()
    assert world.num_parts[request] == 1


@pytest.mark.parametrize("limit", [NUM_PARTS, NUM_PARTS - 1])
def test_a_program_that_yields_as_many_parts_as_it_may_comes_to_its_end(limit: int) -> None:
    few = numbers.with_options(max_parts=limit)

    @dyorc.workflow
    async def reads(start: Number) -> AsyncIterator[Number]:
        async for number in few(start):
            yield number

    parts = dyorc.run(reads, np.array(0))
    assert [int(next(parts)) for _ in range(limit)] == list(range(limit))
    if limit == NUM_PARTS:
        assert list(parts) == []
    else:
        with pytest.raises(ProgramError, match="yielded more parts than its max_parts allows, 6"):
            next(parts)
