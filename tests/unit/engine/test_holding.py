"""Whether a batch waits for calls that are about to be ready. T(n) = 0.1 s + 0.01 s * n, where nothing else is said."""

from typing import Any

import pytest

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.actions import FormReason
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, double, increment

MS = 1_000_000


def world_with(num_replicas: int = 1, *, base_s: float = 0.1, item_s: float = 0.01, **limits: Any) -> World:
    """Makes a world with replicas of `double` and one of `add_one`."""
    world = World([add_one, double], EngineConfig(speculation=SpeculationConfig(enabled=False), **limits))
    world.join(add_one)
    for _ in range(num_replicas):
        world.join(double)
    for program in (add_one, double):
        for size in (1, 2, 4):
            world.engine.scheduler.pools[program.name].latency.observe(size, base_s + item_s * size)
    return world


@dyorc.workflow
async def then_double(x: Vector) -> Vector:
    return double(add_one(x))


@dyorc.workflow
async def only_double(x: Vector) -> Vector:
    return double(x)


def start(world: World, number: int, progress_s: float) -> None:
    """Makes this many calls of `add_one`, which `double` will follow, that have been running for a given time."""
    world.submit_all(then_double, [[at, at] for at in range(number)])
    world.advance(progress_s)


# Calls that are foreseen


def test_a_batch_waits_for_a_call_whose_input_is_about_to_come() -> None:
    world = world_with()
    start(world, 1, 0.09)
    world.submit(only_double, [7, 7])
    assert world.sizes(double) == [], "0.02 s are well spent for the 0.1 s that two batches take longer than one"
    world.advance(0.02)
    world.finish()
    assert world.sizes(double) == [2]
    assert world.oldest().action.reason is FormReason.HELD
    world.finish_all()
    world.check_nothing_is_left()


def test_a_batch_waits_no_longer_than_a_full_one_takes_whatever_is_foreseen() -> None:
    """A call is foreseen every 0.04 s, and none comes."""
    world = world_with()
    for _ in range(3):
        world.join(add_one)
    coming: list[int] = []
    for _ in range(2):
        coming.append(world.submit(then_double, [1, 1]))
        world.advance(0.04)
    waiting = world.submit(only_double, [7, 7])
    num_held = 0
    while not world.sizes(double) and num_held < 20:
        num_held += 1
        coming.append(world.submit(then_double, [1, 1]))
        world.advance(0.03)
        world.cancel(coming.pop(0))
        world.finish(world.batches(add_one)[0], execute_s=0.11)
        world.advance(0.01)
    assert num_held == 4  # T(4) is 0.14 s
    world.finish_all()
    assert list(world.result(waiting)) == [14, 14]
    world.check_nothing_is_left()


def test_a_batch_that_would_wait_for_too_long_goes_at_once() -> None:
    world = world_with()
    start(world, 1, 0.02)
    world.submit(only_double, [7, 7])
    assert world.sizes(double) == [1], "0.09 s for the one, to spare the other 0.02 s"


def test_many_calls_do_not_wait_for_one() -> None:
    world = world_with()
    start(world, 1, 0.05)
    world.submit_all(only_double, [[7, 7]] * 3)
    assert world.sizes(double) == [3], "three times 0.07 s are more than what one call gains"


def test_one_call_waits_for_many() -> None:
    world = world_with()
    start(world, 3, 0.09)
    world.submit(only_double, [7, 7])
    assert world.sizes(double) == []
    world.advance(0.04)
    world.finish()
    assert world.sizes(double) == [4]


def test_no_batch_waits_where_it_costs_no_more_than_its_calls() -> None:
    world = world_with(base_s=0.0, item_s=0.1)
    start(world, 1, 0.09)
    world.submit(only_double, [7, 7])
    assert world.sizes(double) == [1]


def test_a_full_batch_does_not_wait() -> None:
    world = world_with()
    start(world, 1, 0.1)
    world.submit_all(only_double, [[7, 7]] * 4)
    assert world.sizes(double) == [4]


def test_no_batch_waits_if_another_replica_is_idle() -> None:
    world = world_with(2)
    start(world, 1, 0.09)
    world.submit(only_double, [7, 7])
    assert world.sizes(double) == [1]


def test_a_call_that_comes_late_is_not_waited_for_any_longer() -> None:
    world = world_with()
    start(world, 1, 0.09)
    world.submit(only_double, [7, 7])
    world.advance(0.0199)
    assert world.sizes(double) == []
    world.advance(0.0003)
    assert world.sizes(double) == [1]
    assert world.batches(double)[0].action.reason is FormReason.HELD
    world.finish_all()
    assert world.sizes(double) == [1, 1]
    world.check_nothing_is_left()


def test_a_call_that_can_no_longer_come_is_not_waited_for() -> None:
    world = world_with()
    start(world, 1, 0.09)
    world.submit(only_double, [7, 7])
    assert world.sizes(double) == []
    world.cancel(1)
    world.finish(world.batches(add_one)[0])
    assert world.sizes(double) == [1], "as soon as the batch has ended that would have brought it"
    world.finish_all()
    world.check_nothing_is_left()


@pytest.mark.parametrize(("deadline_s", "expected"), [(0.2, []), (0.15, [1])])
def test_no_batch_waits_longer_than_a_deadline_allows(deadline_s: float, expected: list[int]) -> None:
    """A full batch takes 0.14 s, the wait 0.02 s."""
    world = world_with()
    start(world, 1, 0.09)
    world.submit(only_double, [7, 7], deadline_s=deadline_s)
    assert world.sizes(double) == expected


def test_calls_of_a_batch_that_is_waited_for_keep_their_order() -> None:
    world = world_with()
    start(world, 1, 0.09)
    world.submit(only_double, [7, 7])
    world.submit(only_double, [8, 8], deadline_s=5)
    world.advance(0.02)
    world.finish()
    assert world.oldest().column()[0] == [8, 8]


def test_without_holding_no_batch_ever_waits() -> None:
    world = world_with(hold=False)
    start(world, 1, 0.1)
    world.submit(only_double, [7, 7])
    assert world.sizes(double) == [1]
    assert not any(len(pool.foreseen) for pool in world.engine.scheduler.pools.values())


# Loops


@dyorc.workflow
async def until_ten(x: Vector) -> Vector:
    x = add_one(x)
    while not await dyorc.when(x, lambda value: bool(value[0] >= 10)):
        x = add_one(x)
    return x


def looping_world(*, link_s: float = 0.01, **limits: Any) -> World:
    """Makes a world with one replica of `add_one`, which has run a request and has just begun another one. A batch of n is back
    after 0.1 s + 0.01 s * n + `link_s`.
    """
    world = world_with(**limits)
    world.submit(until_ten, [0, 0])
    while world.in_flight:
        turn(world, link_s)
    world.submit(until_ten, [0, 0])
    return world


def turn(world: World, link_s: float) -> None:
    """Lets the oldest batch end in time."""
    execute_s = 0.1 + 0.01 * world.oldest().size
    world.advance(execute_s + link_s)
    world.finish(execute_s=execute_s)


def test_turns_of_two_loops_share_batches() -> None:
    world = looping_world()
    world.submit(until_ten, [5, 5])
    turn(world, 0.01)
    assert world.sizes(add_one)[11:] == [2], "the second request has waited for the first one's next turn"
    while world.in_flight:
        turn(world, 0.01)
    assert world.sizes(add_one)[11:] == [2] * 5 + [1] * 4
    world.check_nothing_is_left()


def test_a_batch_goes_ahead_if_sending_it_takes_as_long_as_a_batch_would_save() -> None:
    world = looping_world(link_s=0.11)
    world.submit(until_ten, [5, 5])
    world.advance(0.21)
    assert world.sizes(add_one)[11:] == [1]


def test_a_full_batch_goes_ahead() -> None:
    world = looping_world()
    world.submit_all(until_ten, [[5, 5]] * 4)
    assert world.sizes(add_one)[11:] == [4]


def test_a_batch_goes_ahead_if_none_may_wait() -> None:
    world = looping_world(hold=False)
    world.submit(until_ten, [5, 5])
    world.advance(0.11)
    assert world.sizes(add_one)[11:] == [1]


def test_a_batch_goes_ahead_where_nothing_follows() -> None:
    world = world_with()
    for _ in range(10):
        world.submit(then_double, [0, 0])
        turn(world, 0.01)
        turn(world, 0.01)
    world.submit(then_double, [0, 0])
    world.submit(then_double, [5, 5])
    world.advance(0.11)
    assert world.sizes(add_one)[10:] == [1, 1]


# Even spacing


def busy_world(rate: float, **options: Any) -> World:
    """Makes a world with two replicas of `double`, to which `rate` calls come in a second; one has just got a batch of 4,
    which takes 0.14 s.
    """
    world = world_with(2, **options)
    pool = world.engine.scheduler.pools["double"]
    for _ in range(int(10 * rate)):
        pool.demand.add(1, world.now_ns)
        world.now_ns += int(1e9 / rate)
    world.submit_all(only_double, [[0, 0]] * 4)
    return world


def test_of_two_replicas_the_second_starts_half_way_through_the_batch_of_the_first() -> None:
    """Otherwise both would end together, and a call that comes just after would wait for a whole batch."""
    world = busy_world(100)
    (first,) = world.batches(double)
    world.advance(0.001)
    world.submit(only_double, [1, 1])
    pool = world.engine.scheduler.pools["double"]
    assert world.batches(double) == [first]
    assert 0 < pool.held_until_ns - world.now_ns < 90 * MS
    sent_ns = world.now_ns
    while len(world.batches(double)) < 2:
        assert world.wake_ns is not None
        world.advance((world.wake_ns - world.now_ns) / 1e9)
    assert 50 * MS < world.now_ns - sent_ns < 90 * MS
    assert world.batches(double)[1].action.reason is FormReason.HELD
    world.finish_all()
    world.check_nothing_is_left()


def test_the_second_replica_does_not_wait_if_few_calls_will_come_meanwhile() -> None:
    world = busy_world(1)
    world.advance(0.001)
    world.submit(only_double, [1, 1])
    assert world.sizes(double) == [4, 1]


def test_the_second_replica_does_not_wait_when_the_first_is_about_to_be_free() -> None:
    world = busy_world(100)
    world.advance(0.135)
    world.submit(only_double, [1, 1])
    assert world.sizes(double) == [4, 1]


def time_beside_an_idle_replica(rate: float, *, base_s: float, item_s: float) -> tuple[float, int]:
    """Returns how long one call waits (in seconds, and in wakes), while one of two replicas runs a batch of 4 that has just
    begun.
    """
    world = world_with(1, base_s=base_s, item_s=item_s)
    pool = world.engine.scheduler.pools["double"]
    for _ in range(int(10 * rate)):
        pool.demand.add(1, world.now_ns)
        world.now_ns += int(1e9 / rate)
    world.submit_all(only_double, [[0, 0]] * 4)
    world.join(double)
    submitted_ns, num_wakes = world.now_ns, 0
    world.submit(only_double, [1, 1])
    while len(pool.queue):
        assert world.wake_ns is not None
        world.advance((world.wake_ns - world.now_ns) / 1e9)
        num_wakes += 1
    return (world.now_ns - submitted_ns) / 1e9, num_wakes


def test_batches_are_not_spaced_where_they_cost_no_more_than_their_calls() -> None:
    """T(n) = 0.1 s * n: no batch gains from a call that comes later."""
    assert time_beside_an_idle_replica(20, base_s=0.0, item_s=0.1) == (0.0, 0)


def test_a_batch_waiting_for_even_spacing_is_woken_a_few_times_at_most() -> None:
    wait_s, num_wakes = time_beside_an_idle_replica(100, base_s=0.1, item_s=0.01)
    assert 0 < wait_s < 0.14
    assert num_wakes < 10


def test_batches_of_a_single_replica_are_never_spaced() -> None:
    world = world_with(1)
    for at in range(200):
        world.engine.scheduler.pools["double"].demand.add(1, at * 10 * MS)
    world.now_ns = 3_000 * MS
    world.submit(only_double, [1, 1])
    assert world.sizes(double) == [1]


def test_a_call_is_not_lost_when_it_waits_and_its_replica_dies() -> None:
    world = world_with()
    start(world, 1, 0.09)
    request_id = world.submit(only_double, [7, 7])
    world.leave("double#1")
    world.advance(1)
    world.join(double)
    world.finish_all()
    assert list(world.result(request_id)) == [14, 14]
    world.check_nothing_is_left()


def test_requests_without_followers_are_not_held() -> None:
    world = world_with()
    world.submit(increment, [0, 0])
    world.advance(0.1)
    world.submit(only_double, [7, 7])
    assert world.sizes(double) == [1]
