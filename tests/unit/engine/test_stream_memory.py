"""Parts of long streams are released once everything that reads the stream has passed them."""

from collections.abc import AsyncIterator

import pytest

import dyorc
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, double
from tests.unit.engine.yielding_world import ALWAYS, count_along, count_up, running_sum, sum_up, yielding_world

NUM_PARTS = 200
ROOM = 8


@dyorc.workflow
async def passed_to_a_program(x: Vector) -> Vector:
    last = x
    async for part in count_up(x, length=NUM_PARTS):
        last = double(part)
    return last


@dyorc.workflow
async def awaited(x: Vector) -> Vector:
    last = x
    async for part in count_up(x, length=NUM_PARTS):
        if (await part).sum() > 600:
            last = part
    return last


@dyorc.workflow
async def decided_by(x: Vector) -> Vector:
    last = x
    async for part in count_up(x, length=NUM_PARTS):
        if await dyorc.when(part, lambda value: value.sum() > 600):
            last = add_one(part)
    return last


@dyorc.workflow
async def yielded(x: Vector) -> AsyncIterator[Vector]:
    async for part in count_up(x, length=NUM_PARTS):
        yield part


@dyorc.workflow
async def nested(x: Vector) -> Vector:
    last = x
    async for part in yielded(x):
        last = double(part)
    return last


@dyorc.workflow
async def doubled(x: Vector) -> AsyncIterator[Vector]:
    async for part in count_up(x, length=NUM_PARTS):
        yield double(part)


@dyorc.workflow
async def nested_results(x: Vector) -> Vector:
    last = x
    async for part in doubled(x):
        last = add_one(part)
    return last


@dyorc.workflow
async def passed_whole(x: Vector) -> Vector:
    return sum_up(count_up(x, length=NUM_PARTS), x)


@dyorc.workflow
async def passed_whole_and_read(x: Vector) -> Vector:
    last = x
    async for part in running_sum(doubled(x)):
        last = double(part)
    return last


WORKFLOWS = [
    passed_to_a_program, awaited, decided_by, yielded, nested, doubled, nested_results, passed_whole, passed_whole_and_read,
]  # fmt: skip


def peak_of(world: World, workflow: dyorc.Workflow) -> int:
    """Runs a workflow and returns the most blocks that were stored at once."""
    request = world.submit(workflow, [200, 200])
    peak = 0
    for _ in range(10 * NUM_PARTS):
        ready = [batch for batch in world.in_flight.values() if world.can_go_on(batch)]
        if ready:
            world.finish(ready[-1])  # first what reads
        elif not world.fetches:
            break
        if world.fetches:
            world.fetch()
        peak = max(peak, len(world.stored))
    assert request in world.answers
    world.check_nothing_is_left()
    return peak


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
@pytest.mark.parametrize("is_fetching", [True, False])
def test_a_long_stream_keeps_only_the_parts_that_were_not_read(workflow: dyorc.Workflow, is_fetching: bool) -> None:
    peak = peak_of(yielding_world(max_untaken_parts=ROOM, is_placing=True, is_fetching=is_fetching), workflow)
    assert peak <= 5 * ROOM + 20


@pytest.mark.parametrize("workflow", [passed_to_a_program, decided_by, nested, passed_whole_and_read], ids=lambda each: each.name)
def test_so_it_does_while_guesses_run_ahead(workflow: dyorc.Workflow) -> None:
    peak = peak_of(yielding_world(ALWAYS, max_untaken_parts=ROOM, is_placing=True), workflow)
    assert peak <= 5 * ROOM + 20


def test_a_stream_that_may_be_read_again_is_kept() -> None:
    @dyorc.workflow
    async def twice(x: Vector) -> Vector:
        stream = count_up(x, length=40)
        last = x
        async for part in stream:
            last = double(part)
        async for part in stream:
            last = add_one(part)
        return last

    world = yielding_world(max_untaken_parts=ROOM, is_placing=True)
    assert peak_of(world, twice) >= 40
    assert world.result(1).tolist() == [240, 240]
    assert world.sizes(count_up) == [1]


def test_a_slower_loop_keeps_what_it_has_not_read() -> None:
    @dyorc.workflow
    async def slow_and_fast(x: Vector) -> Vector:
        stream = count_along(x, length=30)
        slow, fast = aiter(stream), aiter(stream)
        del stream
        first = await anext(slow)
        last = x
        async for part in fast:
            last = double(part)
        await last
        second = await anext(slow)
        async for _ in slow:
            last = double(second)
        await last
        return double(first)

    world = yielding_world(max_untaken_parts=ROOM, is_placing=True)
    assert 28 <= peak_of(world, slow_and_fast) <= 45
    assert world.result(1).tolist() == [400, 400]
    assert world.sizes(count_along) == [1]


@pytest.mark.parametrize("room", [1, ROOM])
def test_a_call_that_runs_again_reads_released_parts_that_are_made_again(room: int) -> None:
    world = yielding_world(max_untaken_parts=room, is_placing=True)
    request = world.submit(passed_whole, [200, 200])
    for _ in range(100):
        world.finish(world.next_batch())
    (reading,) = world.batches(sum_up)
    assert world.batches(count_up), "the stream goes on"
    world.leave(reading.action.replica_id)
    world.join(sum_up)
    for _ in range(8):
        world.finish_all()
    assert world.result(request).tolist() == [60100, 60100]
    world.check_nothing_is_left()
