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


def test_a_batch_that_reports_lost_inputs_runs_again_once_they_are_computed_again() -> None:
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


def test_a_block_that_its_living_holder_no_longer_has_is_lost() -> None:
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


def test_calls_whose_inputs_are_there_go_on_though_others_in_their_batch_lost_theirs() -> None:
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


def test_a_batch_that_cannot_read_inputs_that_exist_is_tried_only_a_few_times() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    for _ in range(3):
        world.lose_inputs(blocks=[("nobody", 7)])
    with pytest.raises(ReplicaLostError, match="the inputs of a call of program 'double' could not be read in 3 attempts"):
        world.result(1)
    assert world.sizes(double) == [1, 1, 1]
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_lost_inputs_do_not_count_as_an_attempt() -> None:
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


def test_a_fetch_that_cannot_read_a_value_that_exists_is_tried_only_a_few_times() -> None:
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


def test_a_batch_whose_inputs_and_then_replica_are_lost_waits_for_the_inputs() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    restart(world, add_one)
    restart(world, double)
    assert not world.batches(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_call_that_returns_to_its_queue_is_in_it_only_once() -> None:
    """A withdrawn call stays in its lane for some time. A call that waits for lost inputs must not stay there."""
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


def test_a_result_that_arrives_together_with_the_end_of_its_replica_is_computed_again() -> None:
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
