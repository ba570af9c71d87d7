"""Equal requests whose replicas are lost at about the same time: that is one loss, and each is tried again alone."""

import pytest

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.events import ReplicaLeft
from dyorc.errors import SuspectInputError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one

single = add_one.with_options(name="single", max_batch_size=1)


@dyorc.workflow
async def singly(x: Vector) -> Vector:
    return single(x)


def running_side_by_side(num_calls: int, **limits: int) -> tuple[World, list[int]]:
    """Returns equal requests that run at once, each on a replica of its own."""
    world = World([single], EngineConfig.model_validate({"hold": False, **limits}))
    for _ in range(num_calls):
        world.join(single)
    requests = [world.submit(singly, [1, 1], identity="equal") for _ in range(num_calls)]
    assert len({batch.action.replica_id for batch in world.in_flight.values()}) == num_calls
    world.advance(0.01)
    return world, requests


def lose_running(world: World, *, at_once: bool) -> None:
    """Kills all replicas that run something from outside: in one turn of the engine, or one after the other."""
    lost = [batch.action.replica_id for batch in world.in_flight.values()]
    events = [ReplicaLeft(replica_id, "its process was killed by signal 9, SIGKILL") for replica_id in lost]
    for turn in [events] if at_once else [[event] for event in events]:
        for event in turn:
            world.forget(event.replica_id)
        world.tell(*turn)
        world.advance(0.01)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("num_calls", [2, 4])
def test_healthy_inputs_are_tried_again_alone_and_answered(num_calls: int, at_once: bool) -> None:
    world, requests = running_side_by_side(num_calls)
    lose_running(world, at_once=at_once)
    assert not world.answers
    for _ in range(2):
        world.join(single)
    later = world.submit(singly, [1, 1], identity="equal")
    while world.in_flight:
        assert sum(batch.action.is_suspect for batch in world.in_flight.values()) <= 1
        world.finish()
    assert [world.result(request)[0] for request in (*requests, later)] == [2] * (num_calls + 1)
    world.check_nothing_is_left()


def test_a_loss_in_the_trial_alone_refuses_all_equal_requests_and_the_error_counts_every_replica() -> None:
    world, requests = running_side_by_side(2)
    lose_running(world, at_once=False)
    world.join(single)
    assert [batch.action.is_suspect for batch in world.in_flight.values()] == [True]
    world.advance(0.01)
    lose_running(world, at_once=True)
    texts: list[str] = []
    for request in requests:
        with pytest.raises(SuspectInputError) as caught:
            world.result(request)
        texts.append(str(caught.value))
    [tried] = [text for text in texts if "lost 3 replicas while running this call and equal ones" in text]
    assert "SIGKILL" in tried
    assert sum("lost replicas to an equal request" in text for text in texts) == 1
    world.check_nothing_is_left()


def test_a_call_that_was_sent_after_the_loss_was_known_counts_as_a_further_one() -> None:
    world, [first] = running_side_by_side(1)
    lose_running(world, at_once=True)
    world.cancel(first)
    world.advance(0.01)
    world.join(single)
    second = world.submit(singly, [1, 1], identity="equal")
    world.advance(0.01)
    lose_running(world, at_once=True)
    with pytest.raises(SuspectInputError, match="lost 2 replicas while running this call and equal ones"):
        world.result(second)


def test_where_three_losses_are_allowed_each_of_them_is_in_another_trial() -> None:
    world, requests = running_side_by_side(3, max_deaths=3)
    lose_running(world, at_once=True)
    world.join(single)
    world.advance(0.01)
    lose_running(world, at_once=True)
    assert not world.answers, "the second loss refused it"
    world.join(single)
    world.advance(0.01)
    lose_running(world, at_once=True)
    assert len(world.answers) == len(requests)
