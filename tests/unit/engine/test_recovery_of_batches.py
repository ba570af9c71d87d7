"""Batches and fetches that could not read the tensors they were sent for."""

import numpy as np
import pytest

from dyorc.engine.events import ReplicaLeft, TensorsLost, ValueFetched
from dyorc.errors import ReplicaLostError
from tests.unit.engine.lossy_world import one_after_the_other, restart, world_with
from tests.unit.engine.programs import add_one, cascade, double, increment, increment_twice


def test_a_batch_that_was_sent_before_its_inputs_were_lost_is_left_alone() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    restart(world, add_one)
    assert world.sizes(add_one) == [1]
    world.finish()
    assert np.array_equal(world.result(1), [4, 4])
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_a_batch_that_says_its_inputs_are_lost_runs_again_after_they_were_computed_again() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    restart(world, add_one)
    world.lose_inputs()
    assert not world.batches(double)
    assert world.sizes(add_one) == [1, 1]
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_block_that_its_holder_does_not_have_is_lost_though_the_holder_is_there() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    (block,) = world.stored
    world.vanish(block)
    world.lose_inputs()
    assert world.sizes(add_one) == [1, 1]
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_calls_of_such_a_batch_whose_inputs_are_there_go_on() -> None:
    world = world_with()
    world.join(add_one, "other")
    world.submit(one_after_the_other, [1, 1])
    world.submit(one_after_the_other, [2, 2])
    world.leave("double")
    while world.batches(add_one):
        world.finish()
    holders = {block[0] for block in world.stored}
    assert holders == {"add_one", "other"}
    world.join(double, "double")
    (batch,) = world.batches(double)
    lost = next(block for block in world.stored if block[0] == "other")
    world.vanish(lost)
    world.lose_inputs(batch, [lost])
    assert len(world.batches(double)) == 1
    assert world.batches(double)[0].size == 1
    world.finish_all()
    assert [world.result(at).tolist() for at in (1, 2)] == [[4, 4], [6, 6]]
    world.check_nothing_is_left()


def test_a_batch_that_never_finds_what_is_there_is_tried_a_few_times() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    for _ in range(3):
        world.lose_inputs(blocks=[("nobody", 7)])
    with pytest.raises(ReplicaLostError, match="the inputs of a call of program 'double' could not be had in 3 attempts"):
        world.result(1)
    assert world.sizes(double) == [1, 1, 1]
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_lost_inputs_do_not_count_as_a_replica_that_died() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    world.lose_inputs(blocks=[])
    (call,) = world.engine.scheduler.batches[world.oldest().action.batch_id].calls
    assert call.num_attempts == 0
    world.finish_all()
    world.check_nothing_is_left()


def test_a_message_about_a_batch_that_was_given_up_is_ignored() -> None:
    world = world_with()
    world.submit(increment, [1, 1])
    world.tell(TensorsLost("add_one", 999, [("add_one", 1)]))
    world.finish_all()
    world.check_nothing_is_left()


def test_a_fetch_that_never_finds_what_is_there_is_tried_a_few_times() -> None:
    world = world_with(is_fetching=False)
    world.submit(cascade, [1, 1])
    world.finish()
    for _ in range(3):
        fetch_id, _ = world.fetches.popitem()
        world.tell(ValueFetched(fetch_id, lost=[("nobody", 7)]))
    with pytest.raises(ReplicaLostError, match="could not be read in 3 attempts"):
        world.result(1)
    world.check_nothing_is_left()


def test_halves_of_a_failed_batch_are_checked_for_lost_inputs() -> None:
    world = world_with()
    world.submit_all(one_after_the_other, [[1, 1], [2, 2]])
    world.finish()
    restart(world, add_one)
    world.fail(world.batches(double)[0])
    world.finish_all()
    assert [world.result(at).tolist() for at in (1, 2)] == [[4, 4], [6, 6]]
    world.check_nothing_is_left()


def test_a_batch_that_dies_after_its_inputs_is_not_sent_to_read_them() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    restart(world, add_one)
    restart(world, double)
    assert not world.batches(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_call_that_comes_back_to_its_queue_is_there_once() -> None:
    """A withdrawn call stays in its lane for some time; one that waits for lost inputs must not."""
    world = world_with(double)
    world.submit_all(one_after_the_other, [[1, 1], [2, 2]])
    world.finish_all()
    restart(world, add_one)
    world.finish_all()
    assert len(world.engine.scheduler.pools["double"].queue) == 2
    world.join(double)
    world.finish_all()
    assert sum(world.sizes(double)) == 2
    assert [world.result(at).tolist() for at in (1, 2)] == [[4, 4], [6, 6]]
    world.check_nothing_is_left()


def test_two_steps_in_one_turn_lose_nothing() -> None:
    """The result of one batch and the end of its replica arrive together."""
    world = world_with()
    world.submit(increment_twice, [1, 1])
    done = world.outcome(world.oldest())
    world.forget("add_one")
    world.tell(done, ReplicaLeft("add_one"))
    assert not world.in_flight
    world.join(add_one, "add_one")
    world.finish_all()
    assert np.array_equal(world.result(1), [3, 3])
    world.check_nothing_is_left()
