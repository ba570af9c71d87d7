"""Blocks of tensors are released when nobody needs them any more, and not before."""

import numpy as np
import pytest

import dyorc
from dyorc.core.tensor import blocks_of
from dyorc.engine.actions import DispatchBatch, ReleaseTensors, StageTensors
from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.events import AnswerTaken, BatchDone, ReplicaJoined, ReplicaLeft, RequestArrived
from dyorc.errors import DeadlineError
from tests.unit.engine.driver import World
from tests.unit.engine.leasing_world import NO_GUESSES, world_with
from tests.unit.engine.programs import Vector, add_one, cascade, double, increment, increment_twice, send

# Counting


def test_a_block_is_released_once_its_last_lease_has_ended() -> None:
    leases = BlockLeases()
    leases.holder_joined("a")
    leases.acquire_new([("a", 1), ("a", 1)])
    leases.release([("a", 1)])
    assert leases.flush() is None
    leases.release([("a", 1)])
    assert leases.flush() == ReleaseTensors([("a", 1)])
    assert leases.flush() is None
    leases.release([("a", 1)])
    assert leases.flush() is None
    assert not leases.counts


def test_a_row_that_is_dropped_before_its_neighbour_is_taken_does_not_release_their_block() -> None:
    leases = BlockLeases()
    leases.holder_joined("a")
    leases.discard([("a", 1)])
    leases.acquire_new([("a", 1)])
    assert leases.flush() is None
    leases.release([("a", 1)])
    assert leases.flush() == ReleaseTensors([("a", 1)])


def test_a_holder_that_left_has_nothing_to_release() -> None:
    leases = BlockLeases()
    leases.holder_joined("a")
    leases.acquire_new([("a", 1), ("", 2)])
    leases.discard([("a", 3)])
    assert leases.holder_left("a")
    assert leases.flush() is None
    leases.acquire_new([("a", 4)])
    leases.acquire([("a", 1)])
    assert leases.counts == {("", 2): 1}
    leases.holder_joined("a")
    assert leases.counts == {("", 2): 1}, "it comes back with nothing"
    assert not leases.holder_left("a")


def test_leases_on_what_a_holder_took_along_count_once_it_is_back() -> None:
    leases = BlockLeases()
    leases.holder_joined("a")
    leases.acquire_new([("a", 1)])
    leases.acquire([("a", 1)])
    leases.holder_left("a")
    leases.release([("a", 1)])
    leases.holder_joined("a")
    assert not leases.is_there(("a", 1)), "it has not said that it still has it"
    leases.acquire_new([("a", 1)])
    leases.release([("a", 1)])
    assert leases.flush() is None, "the lease of before has ended, not the new one"
    leases.release([("a", 1)])
    assert leases.flush() == ReleaseTensors([("a", 1)])
    assert not leases.absent_counts


def test_a_lost_block_cannot_be_read_and_is_released_all_the_same() -> None:
    leases = BlockLeases()
    leases.holder_joined("a")
    leases.acquire_new([("a", 1), ("", 1)])
    assert leases.lose([("a", 1), ("", 1), ("b", 9)])
    assert not leases.lose([("a", 1)]), "that is no news"
    assert not leases.are_there([("a", 1)])
    assert leases.are_there([("", 1)]), "what the orchestrator holds is never lost"
    leases.release([("a", 1)])
    assert leases.flush() == ReleaseTensors([("a", 1)])
    assert not leases.lost


# Who needs a block


def test_outputs_of_a_batch_share_a_block_that_is_released_when_the_last_request_has_ended() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit_all(increment, [[1, 1], [2, 2], [3, 3]])
    world.finish_all()  # the first ran alone or all together, depending on when a replica was free
    shared = max(world.stored, key=lambda block: len(world.stored[block]))
    assert len(world.stored[shared]) == 3
    world.tell(AnswerTaken(1))
    world.tell(AnswerTaken(3))
    assert shared in world.stored
    del world.untaken[1], world.untaken[3]
    world.take()
    assert shared in world.released
    assert np.array_equal(world.result(2), [3, 3])


def test_a_batch_that_runs_may_read_its_inputs_though_its_request_was_cancelled() -> None:
    world = world_with(add_one)
    world.submit(increment_twice, [0, 0])
    world.finish()
    (held,) = world.stored
    world.cancel(1)
    assert held in world.stored
    world.finish()
    assert held in world.released
    world.check_nothing_is_left()


def _returned_gateway() -> tuple[World, RequestArrived]:
    """Returns a world whose gateway has come back with a request, while the oldest batch reads its input for the one before."""
    world = world_with(add_one, is_storing=True)
    world.gateway_joins("gateway")
    event = world.arrival(increment, [0, 0], holder="gateway")
    world.tell(event)
    (again,) = world.gateway_returns("gateway", [event])
    return world, again


def test_a_gateway_that_comes_back_keeps_inputs_that_batches_of_before_still_read() -> None:
    world, again = _returned_gateway()
    world.finish()
    assert world.released.isdisjoint(blocks_of(again.inputs)), "the new request has yet to read it"
    world.finish_all()
    assert np.array_equal(world.result(again.request_id), [1, 1])
    world.check_nothing_is_left()


def test_a_gateway_that_comes_back_has_its_inputs_though_a_batch_of_before_could_not_read_them() -> None:
    world, again = _returned_gateway()
    world.lose_inputs()  # its arena was closed for a moment
    world.finish_all()
    assert np.array_equal(world.result(again.request_id), [1, 1])
    world.check_nothing_is_left()


def test_a_loss_is_believed_that_comes_after_all_readers_of_before() -> None:
    leases = BlockLeases()
    leases.holder_joined("a")
    leases.acquire_new([("a", 1)])
    leases.holder_left("a")
    leases.holder_joined("a")
    leases.acquire_new([("a", 1)])
    assert not leases.lose([("a", 1)]), "the reader of before says so"
    assert leases.is_there(("a", 1))
    assert leases.lose([("a", 1)])
    assert not leases.is_there(("a", 1))


def test_a_value_that_is_being_fetched_is_held_though_its_request_was_cancelled() -> None:
    world = world_with(add_one, double, is_fetching=False)
    world.submit(cascade, [0, 0])
    world.finish()
    (held,) = world.stored
    world.cancel(1)
    assert held in world.stored
    world.fetch()
    assert held in world.released
    world.check_nothing_is_left()


def test_a_result_that_nobody_wants_is_released_with_its_neighbours_kept() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit_all(increment, [[0, 0], [1, 1]])
    world.cancel(1)
    world.finish_all()
    assert not world.released
    world.take()
    world.check_nothing_is_left()


def test_a_late_result_is_released_if_its_holder_is_there() -> None:
    world = world_with(add_one)
    world.submit(increment, [0, 0])
    late = world.outcome(world.oldest())
    (held,) = world.stored
    assert isinstance(late, BatchDone)
    world.tell(BatchDone(late.replica_id, 999, late.outputs, 0.01))
    assert held in world.released


def test_a_late_result_of_a_replica_that_is_gone_is_not_released() -> None:
    world = world_with(add_one)
    world.submit(increment, [0, 0])
    late = world.outcome(world.oldest())
    world.leave("add_one#0")
    world.tell(late)
    assert not world.released
    world.join(add_one, "add_one#0")
    world.finish_all()
    world.check_nothing_is_left()


def test_a_replica_that_leaves_ends_the_leases_of_its_batches() -> None:
    world = world_with(add_one, double)

    @dyorc.workflow
    async def one_after_the_other(x: Vector) -> Vector:
        return double(add_one(x))

    world.submit(one_after_the_other, [0, 0])
    world.finish()
    (held,) = world.stored
    world.cancel(1)
    assert held in world.stored
    world.leave("double#1")
    assert held in world.released
    world.check_nothing_is_left()


# Answers


def test_a_stored_answer_is_kept_until_it_was_taken() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit(increment, [0, 0])
    world.finish()
    assert len(world.engine.tasks.requests) == 1
    assert not world.released
    world.cancel(1)
    world.advance(1e6)
    assert not world.answers, "it was answered: neither cancel nor deadline changes that"
    world.take()
    assert np.array_equal(world.result(1), [1, 1])
    world.check_nothing_is_left()


def test_an_inline_answer_is_forgotten_at_once() -> None:
    world = World([add_one], NO_GUESSES)
    world.join(add_one)
    world.submit(increment, [0, 0])
    world.finish()
    assert not world.engine.tasks.requests
    world.tell(AnswerTaken(1))
    world.check_nothing_is_left()


def test_a_request_with_an_answer_that_was_taken_still_waits_for_its_effects() -> None:
    @dyorc.workflow
    async def sends_behind(x: Vector) -> Vector:
        send(double(x))
        return add_one(x)

    world = world_with(add_one, double, send)
    world.submit(sends_behind, [1, 1])
    world.finish(world.batches(add_one)[0])
    assert np.array_equal(world.result(1), [2, 2])
    assert world.engine.tasks.requests
    world.finish_all()
    assert world.sizes(send) == [1]
    world.check_nothing_is_left()


def test_a_deadline_still_counts_while_an_answer_is_awaited() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit(increment, [0, 0], deadline_s=1.0)
    world.advance(2.0)
    with pytest.raises(DeadlineError):
        world.result(1)
    world.finish_all()
    world.check_nothing_is_left()


# Order


def test_releases_come_last_in_one_action() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit_all(increment_twice, [[0, 0], [1, 1]])
    world.finish()
    actions = world.engine.handle(
        [world.outcome(world.oldest()), ReplicaJoined("late", "add_one"), ReplicaLeft("late")], world.now_ns
    )
    assert [type(action) for action in actions if isinstance(action, ReleaseTensors)] == [ReleaseTensors]
    assert isinstance(actions[-1], ReleaseTensors)
    assert not any(isinstance(action, DispatchBatch | StageTensors) for action in actions)
