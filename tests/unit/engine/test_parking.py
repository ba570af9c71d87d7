"""How many replicas take batches: surplus ones are let go of once they hold nothing, and come back when they are wanted."""

import pytest

from dyorc.engine.engine_context import Host
from dyorc.engine.events import ReplicaJoined, ReplicaLeaving, ReplicasWanted
from tests.unit.engine.driver import World
from tests.unit.engine.programs import add_one, increment, increment_twice


def busy_world(num_replicas: int, **options: bool) -> tuple[World, list[str]]:
    """Returns a world in which each of several replicas runs a batch, and their names; the oldest batch is the first one's."""
    world = World([add_one], **options)
    replicas = [world.join(add_one) for _ in range(num_replicas)]
    for at in range(num_replicas):
        world.submit(increment, [at, at])
    return world, replicas


def test_an_idle_surplus_replica_is_parked_at_once() -> None:
    world = World([add_one])
    world.join(add_one)
    world.join(add_one)
    world.want(add_one, 1)
    assert len(world.parked) == 1
    world.submit(increment, [1, 1])
    assert world.oldest().action.replica_id not in world.parked


def test_what_a_replica_said_before_it_was_parked_does_not_bring_it_back() -> None:
    world = World([add_one])
    replicas = [world.join(add_one) for _ in range(2)]
    again = [ReplicaJoined(replica_id, "add_one", "") for replica_id in replicas]
    world.tell(ReplicasWanted("add_one", 1, 0.0, ()), *again)
    assert len(world.parked) == 1
    world.submit_all(increment, [[1, 1], [2, 2]])
    assert all(batch.action.replica_id not in world.parked for batch in world.in_flight.values())
    world.finish_all()
    world.warm(next(iter(world.parked)))
    assert len(world.engine.scheduler.replicas) == 1, "one is wanted"


def test_idle_replicas_go_before_busy_ones() -> None:
    world, (busy,) = busy_world(1)
    idle = world.join(add_one)
    world.want(add_one, 1)
    assert list(world.parked) == [idle]
    assert world.oldest().action.replica_id == busy


def test_a_busy_surplus_replica_ends_what_it_runs_and_gets_nothing_more() -> None:
    world, replicas = busy_world(2)
    world.want(add_one, 1)
    assert not world.parked
    world.submit_all(increment, [[5, 5], [6, 6]])
    world.finish_all()
    assert len(world.parked) == 1
    assert len({batch.action.replica_id for batch in world.history}) == 2
    assert world.sizes(add_one) == [1, 1, 2], "what came later waited for the replica that stays"
    assert set(world.parked) < set(replicas)
    world.check_nothing_is_left()


def test_the_replica_that_is_free_soonest_goes() -> None:
    world = World([add_one])
    replicas = [world.join(add_one)]
    world.submit(increment, [0, 0])
    world.finish(execute_s=1.0)  # it is known how long a batch takes
    replicas.append(world.join(add_one))
    world.submit(increment, [1, 1])
    first = world.oldest().action.replica_id
    world.advance(0.5)
    world.submit(increment, [2, 2])
    world.want(add_one, 1)
    world.finish()
    assert list(world.parked) == [first]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_misplaced_replica_goes_before_others(at: int) -> None:
    world, replicas = busy_world(2)
    replicas.append(world.join(add_one))  # this one is idle
    world.want(add_one, 2, misplaced=(replicas[at],))
    world.finish_all()
    assert list(world.parked) == [replicas[at]]


def test_a_misplaced_replica_stays_until_another_is_ready() -> None:
    world, (misplaced,) = busy_world(1)
    world.want(add_one, 1, misplaced=(misplaced,))
    world.finish_all()
    assert not world.parked
    world.join(add_one)
    assert list(world.parked) == [misplaced]


def test_a_raised_target_takes_a_draining_replica_back() -> None:
    world, _ = busy_world(2)
    world.want(add_one, 1)
    world.want(add_one, 2)
    world.finish_all()
    assert not world.parked
    assert world.engine.scheduler.pools["add_one"].num_idle == 2


def test_a_draining_replica_stands_in_for_one_that_dies() -> None:
    world, replicas = busy_world(2)
    world.want(add_one, 1)
    staying = next(name for name in replicas if name in world.engine.scheduler.pools["add_one"].replicas)
    world.leave(staying)
    world.finish_all()
    assert not world.parked
    world.check_nothing_is_left()


def test_a_replica_that_is_about_to_end_ends_what_it_runs_gets_nothing_more_and_is_not_taken_back() -> None:
    world, (first, second) = busy_world(2)
    world.want(add_one, 2)
    world.tell(ReplicaLeaving(first))
    world.submit_all(increment, [[5, 5], [6, 6]])
    world.finish_all()
    assert list(world.parked) == [first]
    assert [batch.action.replica_id for batch in world.history] == [first, second, second]
    world.check_nothing_is_left()


def test_a_replica_that_drains_stays_if_another_is_about_to_end() -> None:
    world, replicas = busy_world(2)
    world.want(add_one, 1)
    staying = next(name for name in replicas if name in world.engine.scheduler.pools["add_one"].replicas)
    world.tell(ReplicaLeaving(staying))
    world.finish_all()
    assert list(world.parked) == [staying]


def test_saying_the_same_again_changes_nothing() -> None:
    world, _ = busy_world(2)
    world.want(add_one, 1)
    world.want(add_one, 1)
    world.finish_all()
    world.want(add_one, 1)
    assert len(world.parked) == 1


def test_a_replica_that_joins_beyond_the_target_is_parked() -> None:
    world = World([add_one])
    world.want(add_one, 1)
    world.join(add_one)
    second = world.join(add_one)
    assert len(world.parked) == 1
    assert second in world.parked or second in world.engine.scheduler.replicas


def test_a_parked_replica_joins_again() -> None:
    world = World([add_one])
    replica = world.join(add_one)
    world.want(add_one, 0)
    world.want(add_one, 1)
    request_id = world.submit(increment, [1, 1])
    assert not world.in_flight
    world.warm(replica)
    world.finish_all()
    assert world.result(request_id).tolist() == [2, 2]


def test_tensors_of_a_parked_replica_stay_readable_and_are_released() -> None:
    world = World([add_one], is_placing=True)
    first = world.join(add_one)
    request_id = world.submit(increment_twice, [1, 1])
    world.want(add_one, 0)
    world.finish()  # the first half; its result lies with the replica, which is parked now
    assert list(world.parked) == [first]
    assert world.stored
    world.want(add_one, 1)
    world.join(add_one)
    world.finish()
    assert world.sizes(add_one) == [1, 1], "nothing was computed again"
    assert world.result(request_id).tolist() == [3, 3]
    world.check_nothing_is_left()


def test_tensors_of_a_parked_replica_that_dies_are_computed_again() -> None:
    world = World([add_one], is_placing=True)
    first = world.join(add_one)
    request_id = world.submit(increment_twice, [1, 1])
    world.want(add_one, 0)
    world.finish()
    world.leave(first)
    world.want(add_one, 1)
    world.join(add_one)
    world.finish_all()
    assert world.sizes(add_one) == [1, 1, 1]
    assert world.result(request_id).tolist() == [3, 3]
    world.check_nothing_is_left()


def test_a_replica_that_comes_back_keeps_the_tensors_it_had_when_it_was_parked() -> None:
    world = World([add_one], is_placing=True)
    first = world.join(add_one)
    request_id = world.submit(increment_twice, [1, 1])
    world.want(add_one, 0)
    world.finish()
    world.want(add_one, 1)
    world.warm(first)
    world.finish()
    assert world.result(request_id).tolist() == [3, 3]
    world.check_nothing_is_left()


def test_a_draining_replica_that_dies_gives_its_calls_back() -> None:
    world, replicas = busy_world(2)
    world.want(add_one, 1)
    draining = next(name for name in replicas if name in world.engine.scheduler.pools["add_one"].draining)
    world.leave(draining)
    world.finish_all()
    assert not world.parked
    world.check_nothing_is_left()


def test_a_new_engine_keeps_the_target() -> None:
    host = Host()
    world = World([add_one], host=host)
    world.want(add_one, 0)
    successor = World([add_one], host=host)
    successor.join(add_one)
    assert len(successor.parked) == 1


def test_a_suspect_runs_alone_on_the_only_replica_of_a_program_that_was_scaled_down() -> None:
    world = World([add_one])
    world.want(add_one, 2)
    world.join(add_one)
    world.join(add_one)
    world.want(add_one, 1)
    (parked,) = world.parked
    world.submit(increment, [1, 1])
    world.leave(world.oldest().action.replica_id)
    world.warm(parked)
    assert len(world.in_flight) == 1, "no other replica is expected, so the call that may end it waits for nothing"


@pytest.mark.parametrize("num_calls", [0, 3])
def test_the_load_of_a_program_is_what_waits_and_what_runs(num_calls: int) -> None:
    world, _ = busy_world(1)
    world.want(add_one, 0)
    for at in range(num_calls):
        world.submit(increment, [at, at])
    load = world.engine.scheduler.load("add_one")
    assert (load.num_queued, load.num_running, load.line) == (num_calls, 1, None)
    world.finish(execute_s=0.5)
    load = world.engine.scheduler.load("add_one")
    assert (load.num_queued, load.num_running, load.line) == (num_calls, 0, (0.5, 0.0))
