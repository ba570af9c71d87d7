"""Calls of programs that yield: their parts are read while they run, with back-pressure, and closed when nothing needs them."""

from collections.abc import AsyncIterator

import pytest

import dyorc
from dyorc.engine.engine_context import Host
from dyorc.engine.events import BatchPart
from dyorc.errors import ProgramError, WorkflowError
from tests.unit.engine.programs import Vector, add_one, double, is_large
from tests.unit.engine.yielding_world import (
    ALWAYS,
    announce,
    count_along,
    count_up,
    log,
    passed_on,
    total,
    wait_and_add,
    yielding_world,
)


def test_a_workflow_reads_parts_while_the_program_runs() -> None:
    world = yielding_world()
    request = world.submit(total, [1, 2])
    world.finish()
    assert world.sizes(double) == [1], "the first part is used before the second is there"
    world.finish_all()
    assert world.result(request).tolist() == [6, 8]
    assert log[-1] == "closed"
    world.check_nothing_is_left()


def test_parts_of_a_program_become_parts_of_the_answer() -> None:
    world = yielding_world()
    request = world.submit(passed_on, [1, 2])
    world.finish_all()
    assert [part.tolist() for part in world.part_values(request)] == [[2, 3], [3, 4], [4, 5]]
    assert world.answers[request] == []
    world.check_nothing_is_left()


def test_the_time_to_the_first_part_and_between_parts_is_counted() -> None:
    host = Host()
    world = yielding_world(host=host)
    world.submit(passed_on, [1, 2])
    while world.in_flight:
        world.advance(0.02)
        if world.batches(count_up):
            world.finish(world.batches(count_up)[0])
        while world.batches(add_one):
            world.finish(world.batches(add_one)[0])
    statistics = host.statistics
    of_program, of_workflow = statistics.of_program("count_up").parts, statistics.of_workflow("passed_on").parts
    assert of_program is not None
    assert of_workflow is not None
    for parts in (of_program, of_workflow):
        assert (sum(parts.first.counts), parts.first.total) == (1, 20_000_000)
        assert (sum(parts.between.counts), parts.between.total) == (2, 40_000_000)
    assert statistics.of_program("add_one").parts is None


def test_time_without_credit_is_not_between_parts() -> None:
    host = Host()
    world = yielding_world(max_untaken_parts=1, is_taking=False, host=host)
    request = world.submit(passed_on, [1, 2])
    world.finish_all()
    world.advance(30.0)
    while world.takable():
        world.take_part(request)
        world.finish_all()
    parts = host.statistics.of_program("count_up").parts
    assert parts is not None
    assert (sum(parts.between.counts), parts.between.total) == (2, 0)


def test_collect_returns_the_values_of_all_parts() -> None:
    @dyorc.workflow
    async def counted(x: Vector) -> Vector:
        parts = await dyorc.collect(count_up(x, length=4))
        return sum(parts, start=parts[0] * 0)

    world = yielding_world()
    request = world.submit(counted, [1, 2])
    world.finish_all()
    assert world.result(request).tolist() == [10, 14]
    world.check_nothing_is_left()


def test_an_error_comes_after_the_parts_before_it_and_can_be_caught() -> None:
    @dyorc.workflow
    async def careful(x: Vector) -> Vector:
        last = x
        try:
            async for part in count_up(x, length=10):
                last = part
        except dyorc.ProgramError:
            return double(last)
        return last

    world = yielding_world()
    request, failing = world.submit(careful, [97, 0]), world.submit(total, [99, 0])
    world.finish_all()
    assert world.result(request).tolist() == [198, 4]
    with pytest.raises(ProgramError, match="it is a hundred"):
        world.result(failing)
    world.check_nothing_is_left()


def test_a_replica_is_at_most_so_many_parts_ahead_of_the_furthest_reader() -> None:
    world = yielding_world(max_untaken_parts=2, is_taking=False)
    request = world.submit(passed_on, [1, 2])
    world.finish_all()
    # Two parts of the answer wait; the run has read a third, and waits to yield it. Two more may be ahead of it.
    assert log == ["part 0", "part 1", "part 2", "closed"]
    assert world.num_parts[request] == 2
    while world.next_part(request) is not None:
        world.take_part(request)
        world.finish_all()
    assert [part.tolist() for part in world.part_values(request)] == [[2, 3], [3, 4], [4, 5]]
    world.check_nothing_is_left()


@pytest.mark.parametrize("room", [1, 2, 5, 16])
def test_nothing_is_yielded_that_was_not_asked_for(room: int) -> None:
    @dyorc.workflow
    async def slow_reader(x: Vector) -> AsyncIterator[Vector]:
        async for part in count_up(x, length=100):
            yield part

    world = yielding_world(max_untaken_parts=room, is_taking=False)
    request = world.submit(slow_reader, [0, 200])
    num_taken = 0
    while request not in world.answers:
        world.finish_all()
        num_yielded = sum(line.startswith("part") for line in log)
        assert num_yielded <= num_taken + 2 * room + 1
        while world.next_part(request) is not None and num_taken < 5:
            world.take_part(request)
            num_taken += 1
        if num_taken == 5:
            world.cancel(request)
    world.finish_all()
    assert log[-1] == "closed"
    world.check_nothing_is_left()


def test_a_workflow_that_stops_reading_and_returns_closes_the_generator() -> None:
    @dyorc.workflow
    async def first(x: Vector) -> Vector:
        async for part in count_up(x, length=50):
            return double(part)
        return x

    world = yielding_world()
    request = world.submit(first, [1, 2])
    world.finish()
    assert [call.is_cancelled for call in world.running.values()] == [True]
    world.finish_all()
    assert world.result(request).tolist() == [2, 4]
    assert log == ["part 0", "closed"]
    world.check_nothing_is_left()


def test_a_cancelled_request_closes_its_generators_and_keeps_the_place_busy_until_then() -> None:
    world = yielding_world()
    request = world.submit(total, [1, 2])
    world.finish()
    world.cancel(request)
    waiting = world.submit(total, [3, 4])
    assert len(world.batches(count_up)) == 1
    world.finish_all()
    assert world.result(waiting).tolist() == [10, 12]
    world.check_nothing_is_left()


def test_a_stream_with_an_effect_comes_to_its_end_although_nobody_reads_it() -> None:
    @dyorc.workflow
    async def forgetful(x: Vector) -> Vector:
        announce(x, length=40)
        return add_one(x)

    world = yielding_world(max_untaken_parts=2)
    request = world.submit(forgetful, [1, 2])
    world.finish_all()
    assert world.result(request).tolist() == [2, 3]
    assert log == [f"announced {number}" for number in range(40)]
    world.check_nothing_is_left()


def test_calls_run_side_by_side_on_one_replica_up_to_their_limit() -> None:
    @dyorc.workflow
    async def along(x: Vector) -> Vector:
        parts = await dyorc.collect(count_along(x))
        return parts[-1]

    @dyorc.workflow
    async def waiting(x: Vector) -> Vector:
        return wait_and_add(x)

    world = yielding_world()
    requests = world.submit_all(along, [[number, 0] for number in range(5)])
    assert len(world.batches(count_along)) == 3
    others = world.submit_all(waiting, [[number, 0] for number in range(5)])
    assert len(world.batches(wait_and_add)) == 2
    world.finish_all()
    assert [world.result(request).tolist() for request in requests] == [[number + 2, 2] for number in range(5)]
    assert [world.result(request).tolist() for request in others] == [[number + 1, 1] for number in range(5)]
    world.check_nothing_is_left()


def test_calls_go_to_the_replica_that_runs_the_fewest() -> None:
    @dyorc.workflow
    async def waiting(x: Vector) -> Vector:
        return wait_and_add(x)

    world = yielding_world()
    second = world.join(wait_and_add)
    world.submit_all(waiting, [[0, 0], [1, 1]])
    assert len({batch.action.replica_id for batch in world.batches(wait_and_add)}) == 2
    world.leave(second)
    world.finish_all()
    world.check_nothing_is_left()


def test_the_limit_of_time_counts_between_parts_and_not_while_the_program_may_not_go_on() -> None:
    world = yielding_world(max_untaken_parts=1, is_taking=False)
    request = world.submit(passed_on, [1, 2], deadline_s=1000)
    world.finish_all()
    assert not world.replaced
    for _ in range(3):
        world.advance(50)
    assert not world.replaced, "it waits for its readers"
    world.take_part(request)
    world.finish_all()
    world.advance(59)
    assert not world.replaced
    world.check_nothing_is_left() if request in world.answers else world.cancel(request)
    world.finish_all()


def test_a_program_that_yields_nothing_for_too_long_is_replaced() -> None:
    world = yielding_world()
    request = world.submit(total, [1, 2], deadline_s=1000)
    world.advance(50)
    world.finish()
    world.finish(world.batches(double)[0])
    world.advance(50)
    assert not world.replaced
    world.advance(11)
    assert len(world.replaced) == 1
    world.join(count_up)
    world.finish_all()
    assert world.result(request).tolist() == [6, 8]


def test_a_cancelled_call_that_does_not_end_is_replaced() -> None:
    world = yielding_world(max_untaken_parts=1, is_taking=False)
    request = world.submit(passed_on, [1, 2], deadline_s=1000)
    world.finish_all()
    world.advance(500)
    assert not world.replaced
    world.cancel(request)
    world.advance(61)
    assert world.replaced
    world.check_nothing_is_left()


def test_guesses_read_parts_and_nothing_of_them_is_sent_before_they_are_certain() -> None:
    @dyorc.workflow
    async def guessed(x: Vector) -> AsyncIterator[Vector]:
        if await dyorc.when(add_one(x), is_large, likely=True):
            async for part in count_up(x):
                yield part
        else:
            yield double(x)

    world = yielding_world(ALWAYS, is_taking=False)
    request, wrong = world.submit(guessed, [10, 20]), world.submit(guessed, [1, 2])
    for batch in world.batches(count_up):
        world.finish(batch)
        world.finish(batch)
    assert not world.num_parts[request]
    world.is_taking = True
    world.finish_all()
    assert [part.tolist() for part in world.part_values(request)] == [[10, 20], [11, 21], [12, 22]]
    assert [part.tolist() for part in world.part_values(wrong)] == [[2, 4]]
    world.check_nothing_is_left()


def test_two_loops_read_the_same_stream_each_from_its_start() -> None:
    @dyorc.workflow
    async def twice(x: Vector) -> Vector:
        stream = count_up(x)
        first = await dyorc.collect(stream)
        second = await dyorc.collect(stream)
        return first[0] + second[-1]

    world = yielding_world()
    request = world.submit(twice, [1, 2])
    world.finish_all()
    assert world.result(request).tolist() == [4, 6]
    assert len(world.sizes(count_up)) == 1
    world.check_nothing_is_left()


def test_a_stream_cannot_be_awaited_or_passed_for_a_tensor() -> None:
    @dyorc.workflow
    async def awaiting(x: Vector) -> Vector:
        return await count_up(x)

    @dyorc.workflow
    async def passing(x: Vector) -> Vector:
        return add_one(count_up(x))

    world = yielding_world()
    for workflow in (awaiting, passing):
        request = world.submit(workflow, [1, 2])
        world.finish_all()
        with pytest.raises(WorkflowError, match="Stream"):
            world.result(request)
    world.check_nothing_is_left()


def test_a_late_part_of_a_batch_that_was_given_up_is_dropped() -> None:
    world = yielding_world(is_placing=True)
    request = world.submit(total, [1, 2])
    batch = world.batches(count_up)[0]
    world.tell(BatchPart("another", batch.action.batch_id, 0, ()))
    world.finish_all()
    assert world.result(request).tolist() == [6, 8]
    world.check_nothing_is_left()


def test_a_stream_that_nothing_can_read_again_is_closed_while_the_workflow_goes_on() -> None:
    @dyorc.workflow
    async def peeking(x: Vector) -> Vector:
        async for part in count_up(x, length=50):
            x = part
            break
        return await add_one(await double(x))

    world = yielding_world()
    request = world.submit(peeking, [1, 2])
    world.finish()
    assert [call.is_cancelled for call in world.running.values()] == [True]
    assert request not in world.answers
    world.finish_all()
    assert world.result(request).tolist() == [3, 5]
    assert log == ["part 0", "closed"]
    world.check_nothing_is_left()


def test_a_stream_that_is_kept_may_be_read_later() -> None:
    @dyorc.workflow
    async def peeking(x: Vector) -> Vector:
        stream = count_up(x, length=4)
        async for part in stream:
            x = part
            break
        y = await double(x)
        return y + (await dyorc.collect(stream))[-1]

    world = yielding_world(max_untaken_parts=1)
    request = world.submit(peeking, [1, 2])
    world.finish_all()
    assert world.result(request).tolist() == [6, 9]
    world.check_nothing_is_left()
