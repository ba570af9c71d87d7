"""Streams passed whole: to workflows, which read the same parts, and to programs, which are fed while they run."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.errors import ProgramError, WorkflowError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, double
from tests.unit.engine.yielding_world import count_along, count_up, first_of, log, passed_on, running_sum, sum_up, yielding_world

STORED: list[dict[str, Any]] = [{}, {"is_storing": True}, {"is_placing": True}, {"is_placing": True, "is_fetching": False}]


@dyorc.workflow
async def summed(x: Vector) -> Vector:
    return double(sum_up(count_up(x), x))


@dyorc.workflow
async def sums(x: Vector) -> AsyncIterator[Vector]:
    async for part in running_sum(count_up(x, length=5)):
        yield add_one(part)


def run(world: World, workflow: dyorc.Workflow, x: list[float]) -> int:
    request = world.submit(workflow, x)
    for _ in range(100):
        world.finish_all()
        if world.fetches:
            world.fetch()
        if request in world.answers:
            break
    return request


@pytest.mark.parametrize("stored", STORED)
def test_a_program_reads_a_stream_while_another_yields_it(stored: dict[str, Any]) -> None:
    world = yielding_world(**stored)
    request = run(world, summed, [1, 2])
    assert world.result(request).tolist() == [14, 22]
    world.check_nothing_is_left()


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("room", [1, 2, 16])
def test_a_program_yields_while_it_reads(stored: dict[str, Any], room: int) -> None:
    world = yielding_world(max_untaken_parts=room, **stored)
    request = run(world, sums, [1, 2])
    assert [part.tolist() for part in world.part_values(request)] == [[2, 3], [4, 6], [7, 10], [11, 15], [16, 21]]
    world.check_nothing_is_left()


def test_a_call_that_reads_a_stream_does_not_wait_for_it() -> None:
    world = yielding_world()
    world.submit(sums, [1, 2])
    assert len(world.batches(running_sum)) == 1
    world.finish(world.batches(count_up)[0])
    world.finish(world.batches(running_sum)[0])
    assert log == ["part 0", "sum 1"]
    world.cancel(1)
    world.finish_all()
    world.check_nothing_is_left()


def test_a_slow_reader_holds_up_what_it_reads() -> None:
    @dyorc.workflow
    async def slow(x: Vector) -> AsyncIterator[Vector]:
        async for part in running_sum(count_up(x, length=50)):
            yield part

    world = yielding_world(max_untaken_parts=2, is_taking=False)
    world.submit(slow, [1, 2])
    world.finish_all()
    assert sum(line.startswith("part") for line in log) <= 10
    world.cancel(1)
    world.finish_all()
    assert log[-1] == "closed"
    world.check_nothing_is_left()


def test_a_stream_that_fails_ends_with_its_error_where_it_is_read() -> None:
    world = yielding_world()
    request = run(world, summed, [98, 0])
    with pytest.raises(ProgramError, match="it is a hundred"):
        world.result(request)
    world.check_nothing_is_left()


def test_a_workflow_reads_the_stream_it_was_given_and_so_does_its_caller() -> None:
    @dyorc.workflow
    async def last_of(parts: AsyncIterator[Vector], x: Vector) -> Vector:
        last = x
        async for part in parts:
            last = add_one(part)
        return last

    @dyorc.workflow
    async def both(x: Vector) -> AsyncIterator[Vector]:
        stream = count_up(x)
        last = last_of(stream, x)
        async for part in stream:
            yield part
        yield last
        yield sum_up(passed_on(x), last)

    for stored in STORED[:3]:
        world = yielding_world(**stored)
        request = run(world, both, [1, 2])
        parts = [part.tolist() for part in world.part_values(request)]
        assert parts == [[1, 2], [2, 3], [3, 4], [4, 5], [13, 17]]
        assert world.sizes(count_up) == [1, 1]
        world.check_nothing_is_left()


def test_a_guard_reads_first_and_the_workflow_afterwards() -> None:
    @dyorc.workflow
    async def guarded(x: Vector) -> AsyncIterator[Vector]:
        stream = count_along(x, length=10)
        await sum_up(stream, x)
        async for part in stream:
            yield part

    world = yielding_world(max_untaken_parts=2)
    request = run(world, guarded, [1, 2])
    assert len(world.part_values(request)) == 10
    world.check_nothing_is_left()


def test_what_is_no_stream_or_one_of_other_tensors_is_refused_where_it_is_passed() -> None:
    @dyorc.program(batched=False)
    async def takes_three(parts: AsyncIterator[Float[np.ndarray, "3"]]) -> Vector:
        async for _ in parts:
            pass
        return np.zeros(2, np.float32)

    async def passing_a_ref(x: Vector) -> Vector:
        return sum_up(add_one(x), x)

    async def passing_an_array(x: Vector) -> Vector:
        return sum_up(np.zeros(2), x)

    async def of_other_tensors(x: Vector) -> Vector:
        return takes_three(count_up(x))

    world = yielding_world()
    world.add(takes_three)
    for function, text in (
        (passing_a_ref, r"'parts' is a stream, and a Ref was given; pass the Stream itself.*line \d+"),
        (passing_an_array, r"'parts' is a stream, and a ndarray was given"),
        (of_other_tensors, r"'parts' is a stream of FP32\[2\], expected FP32\[3\]"),
    ):
        request = world.submit(dyorc.workflow(function), [1, 2])
        world.finish_all()
        with pytest.raises(WorkflowError, match=text):
            world.result(request)
    world.check_nothing_is_left()


def test_the_time_of_a_program_does_not_count_while_it_has_nothing_to_read() -> None:
    world = yielding_world()
    request = world.submit(summed, [1, 2], deadline_s=1000)
    for _ in range(3):
        world.advance(50)
        world.finish(world.batches(count_up)[0])
        world.finish(world.batches(sum_up)[0])
    assert not world.replaced
    world.finish_all()
    assert world.result(request).tolist() == [14, 22]
    world.check_nothing_is_left()


# Long streams


@dyorc.workflow
async def long_sums(x: Vector) -> AsyncIterator[Vector]:
    async for part in running_sum(count_along(x, length=200)):
        yield part


@dyorc.workflow
async def long_sum(x: Vector) -> Vector:
    return sum_up(running_sum(count_along(x, length=200)), x)


def most_kept(world: World) -> int:
    """Lets all programs run to their ends. Returns the most blocks that were kept meanwhile."""
    most = 0
    while (batch := world.next_batch()) is not None:
        world.finish(batch)
        most = max(most, len(world.engine.leases.counts))
    return most


SUMS = np.cumsum(1 + np.arange(200)).tolist()


@pytest.mark.parametrize("stored", STORED[1:3])
def test_a_long_stream_through_programs_keeps_a_few_parts(stored: dict[str, Any]) -> None:
    world = yielding_world(max_untaken_parts=4, **stored)
    request = world.submit(long_sums, [1, 1])
    assert most_kept(world) <= 30
    assert [part[0] for part in world.part_values(request)] == SUMS
    request = world.submit(long_sum, [0, 0])
    assert most_kept(world) <= 30
    assert world.result(request)[0] == np.cumsum(np.cumsum(np.arange(200)))[-1]
    world.check_nothing_is_left()


@pytest.mark.parametrize(("num_before", "num_replicas"), [(50, 2), (300, 1), (590, 1)])
@pytest.mark.parametrize("lost", [(running_sum,), (count_along,), (sum_up,), (sum_up, running_sum), (count_along, running_sum)])
def test_a_lost_reader_reads_a_long_stream_again_as_it_is_made_again(
    lost: tuple[dyorc.Program, ...], num_before: int, num_replicas: int
) -> None:
    world = yielding_world(max_untaken_parts=4, is_placing=True)
    for program in lost * (num_replicas - 1):
        world.join(program)
    request = world.submit(long_sum, [0, 0])
    for _ in range(num_before):
        if (batch := world.next_batch()) is not None:
            world.finish(batch)
    for program in lost:
        running = [batch.action.replica_id for batch in world.batches(program)]  # none, if it has ended
        world.leave((running or [name for name in world.process_of if name.startswith(program.name)])[0])
        world.join(program)
    assert most_kept(world) <= 40
    assert world.result(request)[0] == np.cumsum(np.cumsum(np.arange(200)))[-1]
    assert len(world.sizes(count_along)) <= 2 + len(lost)
    world.check_nothing_is_left()


@dyorc.workflow
async def long_count(x: Vector) -> AsyncIterator[Vector]:
    async for part in count_up(x, length=50):
        yield part


@dyorc.workflow
async def first_only(x: Vector) -> Vector:
    return first_of(count_up(x, length=50))


@dyorc.workflow
async def first_of_a_workflow(x: Vector) -> Vector:
    return first_of(long_count(x))


@dyorc.workflow
async def first_of_sums(x: Vector) -> Vector:
    return first_of(running_sum(count_up(x, length=50)))


@dyorc.workflow
async def first_as_part(x: Vector) -> AsyncIterator[Vector]:
    yield first_of(count_up(x, length=50))


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("workflow", [first_only, first_of_a_workflow, first_of_sums, first_as_part])
def test_what_yields_ends_with_the_request_if_the_last_call_has_read_enough(workflow: Any, stored: dict[str, Any]) -> None:
    world = yielding_world(max_untaken_parts=2, **stored)
    request = run(world, workflow, [1, 2])
    assert request in world.answers
    world.finish_all()
    assert log[-1] == "closed"
    assert len(log) < 20
    world.check_nothing_is_left()


def test_what_nobody_reads_ends_before_the_answer_of_a_workflow_that_has_returned() -> None:
    @dyorc.workflow
    async def first_doubled(x: Vector) -> Vector:
        return double(first_of(count_up(x, length=50)))

    world = yielding_world(max_untaken_parts=2)
    request = world.submit(first_doubled, [1, 2])
    while not world.batches(double):
        world.finish(world.next_batch())
    world.finish(world.batches(count_up)[0])
    assert log[-1] == "closed"
    assert request not in world.answers
    world.finish_all()
    assert world.result(request).tolist() == [2, 4]
    world.check_nothing_is_left()
