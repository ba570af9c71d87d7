"""A batch whose results find no memory is tried in parts, for as long as one wait, and then fails."""

import numpy as np
import pytest

import dyorc
from dyorc.engine.events import BatchFailed
from dyorc.errors import CapacityError
from tests.unit.engine.dispatched import Dispatched
from tests.unit.engine.driver import World
from tests.unit.engine.leasing_world import world_with
from tests.unit.engine.programs import Vector, Vectors, add_one, increment, send


@dyorc.program(max_batch_size=8)
def widen(x: Vectors) -> Vectors:
    return x + 1


@dyorc.workflow
async def widened(x: Vector) -> Vector:
    return widen(x)


@dyorc.workflow
async def sends(x: Vector) -> Vector:
    return send(x)


def find_no_room(world: World, batch: Dispatched) -> int:
    """Answers a batch whose results found no memory; returns how large it was."""
    del world.in_flight[batch.action.batch_id]
    world.tell(BatchFailed(batch.action.replica_id, batch.action.batch_id, "MemoryError", "the arena is full", is_capacity=True))
    return batch.size


def check_no_room(world: World, request_id: int) -> None:
    with pytest.raises(CapacityError, match=r"no memory for the results of program '.*': the arena is full") as caught:
        world.result(request_id)
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s >= 0.1


def test_a_batch_whose_results_find_no_memory_is_tried_in_halves() -> None:
    world = world_with(widen)
    world.submit_all(widened, [[n, n] for n in range(8)])
    assert [find_no_room(world, world.oldest()), find_no_room(world, world.oldest())] == [8, 4]
    assert not world.answers
    world.finish_all()
    assert sorted(world.sizes(widen)) == [2, 2, 4, 4, 8]
    for n in range(8):
        assert np.array_equal(world.result(n + 1), [n + 1, n + 1])
    world.check_nothing_is_left()


def test_calls_whose_results_find_no_memory_again_and_again_fail_and_others_do_not() -> None:
    world = world_with(widen)
    world.submit_all(widened, [[n, n] for n in range(8)])
    sizes: list[int] = []
    while world.in_flight:
        batch = world.oldest()
        if any(operands[0].data is not None and operands[0].data[0] == 0 for operands in batch.action.operands):
            sizes.append(find_no_room(world, batch))
        else:
            world.finish(batch)
    assert sizes == [8, 4, 2], "each try waits for room, so there are few"
    for request_id in (1, 2):
        check_no_room(world, request_id)
    for n in range(2, 8):
        assert np.array_equal(world.result(n + 1), [n + 1, n + 1])
    world.check_nothing_is_left()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_a_batch_and_its_parts_wait_for_room_no_longer_than_one_wait(size: int) -> None:
    world = world_with(widen)
    world.submit_all(widened, [[n, n] for n in range(size)])
    waits: list[float] = []
    while world.in_flight:
        batch = world.oldest()
        waits.append(batch.action.room_share)
        find_no_room(world, batch)
    assert len(waits) == {1: 1, 2: 3, 3: 5}.get(size, 7)
    assert min(waits) >= 1 / (3 * size)
    assert sum(waits) == pytest.approx(1)
    for n in range(size):
        check_no_room(world, n + 1)
    world.check_nothing_is_left()


def test_a_part_that_raises_does_not_make_the_wait_longer() -> None:
    world = world_with(widen)
    world.submit_all(widened, [[n, n] for n in range(8)])
    waits = [world.oldest().action.room_share]
    find_no_room(world, world.oldest())
    world.fail()
    while world.in_flight:
        waits.append(world.oldest().action.room_share)
        find_no_room(world, world.oldest())
    assert len(waits) == 10
    assert sum(waits) == pytest.approx(1)


def test_a_single_call_whose_result_finds_no_memory_fails_at_once() -> None:
    world = world_with(add_one)
    world.submit(increment, [1, 1])
    assert find_no_room(world, world.oldest()) == 1
    check_no_room(world, 1)
    assert not world.in_flight
    world.check_nothing_is_left()


def test_a_program_with_an_effect_is_not_run_again_because_its_results_found_no_memory() -> None:
    world = world_with(send)
    world.submit_all(sends, [[1, 1], [2, 2]])
    assert find_no_room(world, world.oldest()) == 2
    for request_id in (1, 2):
        check_no_room(world, request_id)
    assert not world.in_flight
    world.check_nothing_is_left()


def test_a_program_none_of_whose_calls_has_memory_is_noticed_until_one_runs() -> None:
    world = World([add_one])
    world.join(add_one)
    for number in range(5):
        world.submit(increment, [number, number])
        batch = world.oldest()
        del world.in_flight[batch.action.batch_id]
        world.tell(BatchFailed(batch.action.replica_id, batch.action.batch_id, "OutOfMemoryError", "9 GiB"))
    assert world.starved == [("add_one", "OutOfMemoryError: 9 GiB")]
    world.submit(increment, [1, 1])
    world.finish()
    assert world.starved[1:] == [("add_one", "")]


def test_other_failures_and_batches_that_fit_in_halves_are_no_want_of_memory() -> None:
    world = World([add_one])
    world.join(add_one)
    for number in range(5):
        world.submit(increment, [number, number])
        world.fail(message="it is negative")
    for _ in range(5):
        first = world.submit(increment, [1, 1])
        world.submit_all(increment, [[2, 2]] * 4)
        world.finish()
        find_no_room(world, world.oldest())
        world.finish_all()
        assert world.result(first)[0] == 2
    assert not world.starved


@dyorc.workflow
async def fan_out(x: Vector) -> Vector:
    start = await x
    await dyorc.gather(*dyorc.map(widen, [start + number for number in range(32)]))
    return start


def test_a_fan_out_whose_results_find_no_memory_waits_once_and_others_wait_as_before() -> None:
    """A wait for each batch of a fan-out would hold the replica up for minutes."""
    world = world_with(widen)
    wide = world.submit(fan_out, [0.0, 0.0])
    shares: list[float] = []
    while world.in_flight:
        shares.append(world.oldest().action.room_share)
        find_no_room(world, world.oldest())
    assert sum(shares) <= 2, "a second batch was on its way before the first had waited"
    assert sorted(world.sizes(widen), reverse=True)[:4] == [8, 8, 8, 8]
    check_no_room(world, wide)
    world.submit(widened, [1.0, 2.0])
    assert world.oldest().action.room_share == 1.0
    world.finish_all()
    world.check_nothing_is_left()
