"""Stored tensors of a part are kept until it is taken, and computed again if they are lost before."""

from collections.abc import AsyncIterator

import pytest

import dyorc
from dyorc.engine.events import PartTaken
from dyorc.errors import EffectLostError, ReplicaLostError
from tests.unit.engine.programs import Vector, add_one, send
from tests.unit.engine.streaming_world import finish_all, five, take_all, world_with


def test_tensors_of_a_part_are_kept_until_it_is_taken_and_then_released() -> None:
    world = world_with(max_untaken_parts=2, is_storing=True)
    request = world.submit(five, [0, 0])
    world.finish_all()
    before = len(world.stored)
    world.take_part(request)
    assert len(world.stored) == before - 1
    world.finish_all()
    for _ in range(3):
        world.take_part(request)
        world.finish_all()
        assert len(world.stored) <= 4  # the input, two parts that wait, one that is being computed
    assert take_all(world, request) == [[number, number] for number in range(1, 6)]
    world.check_nothing_is_left()


@pytest.mark.parametrize("taken", [0, 1])
def test_a_part_that_was_lost_before_it_was_taken_is_computed_again(taken: int) -> None:
    world = world_with(is_placing=True)
    request = world.submit(five, [0, 0], explain=True)
    world.finish_all()
    for _ in range(taken):
        world.take_part(request)
    world.leave("add_one#0")
    assert not world.take_part(request)
    world.join(add_one)
    assert finish_all(world, request) == [[number, number] for number in range(1, 6)]
    assert world.answers[request] == []
    assert "recomputed" in [step["event"] for step in world.stories[request].steps()]
    world.check_nothing_is_left()


def test_a_part_that_is_lost_too_often_ends_the_request() -> None:
    world = world_with(is_placing=True, max_attempts=2)
    request = world.submit(five, [0, 0])
    world.finish_all()
    world.take_part(request)
    for _ in range(2):
        for block in [block for block in world.stored if block[0]]:
            world.vanish(block)
        while request not in world.answers and world.next_part(request) is not None:
            world.take_part(request)
        world.finish_all()
    with pytest.raises(ReplicaLostError):
        world.result(request)
    assert world.part_values(request)
    world.check_nothing_is_left()


def test_a_part_that_must_not_be_computed_again_ends_the_request() -> None:
    @dyorc.workflow
    async def sends(x: Vector) -> AsyncIterator[Vector]:
        yield add_one(x)
        yield send(x)

    world = world_with(is_placing=True)
    request = world.submit(sends, [1, 2])
    world.finish_all()
    world.take_part(request)
    world.leave("send#4")
    assert not world.take_part(request)
    with pytest.raises(EffectLostError):
        world.result(request)
    assert len(world.part_values(request)) == 1
    world.check_nothing_is_left()


def test_a_part_that_exists_but_cannot_be_read_is_not_sent_for_ever() -> None:
    world = world_with(is_storing=True, max_attempts=3)
    request = world.submit(five, [0, 0])
    world.finish()
    for _ in range(3):
        (tensor,) = world.waiting_parts[request].pop(0)
        world.tell(PartTaken(request, 0, [(tensor.holder, tensor.block)]))
    with pytest.raises(ReplicaLostError, match="part 0 of the answer was lost 3 times"):
        world.result(request)
