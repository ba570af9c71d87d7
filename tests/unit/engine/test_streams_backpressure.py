"""A workflow stops yielding when too many of its parts have not been taken."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import dyorc
from dyorc.engine.events import PartTaken
from dyorc.errors import WorkflowLimitError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, check
from tests.unit.engine.streaming_world import ALWAYS, finish_all, five, guarded, log, take_all, world_with


def test_a_workflow_stops_at_the_first_part_over_the_limit_until_one_is_taken() -> None:
    world = world_with(max_untaken_parts=2)
    request = world.submit(five, [0, 0])
    world.finish_all()
    assert log == ["part 0", "part 1", "part 2"]  # the third is computed but not sent
    assert world.num_parts[request] == 2
    world.take_part(request)
    assert log[3:] == ["part 3"]
    assert world.num_parts[request] == 3
    world.finish_all()
    assert world.num_parts[request] == 3


def test_a_waiting_workflow_does_not_spin() -> None:
    world = world_with(max_untaken_parts=1)
    request = world.submit(five, [0, 0])
    world.finish_all()
    num_handled = len(log)
    for _ in range(3):
        world.tell(PartTaken(request, 7))  # no such part was sent
        world.advance(1)
    assert len(log) == num_handled
    assert finish_all(world, request) == [[number, number] for number in range(1, 6)]
    world.check_nothing_is_left()


def test_an_endless_generator_without_calls_stops_when_nobody_takes_its_parts() -> None:
    @dyorc.workflow
    async def endless(x: Vector) -> AsyncIterator[Vector]:
        while True:
            yield x

    world = world_with(max_untaken_parts=3)
    request = world.submit(endless, [1, 2])
    assert world.num_parts[request] == 3
    world.take_part(request)
    assert world.num_parts[request] == 4
    world.cancel(request)
    world.check_nothing_is_left()


def test_a_stream_has_at_most_as_many_parts_as_a_request_may_make_calls() -> None:
    @dyorc.workflow
    async def endless(x: Vector) -> AsyncIterator[Vector]:
        while True:
            yield x

    world = world_with(max_calls_per_request=10)
    request = world.submit(endless, [1, 2])
    assert len(take_all(world, request)) == 10
    with pytest.raises(WorkflowLimitError, match="more than 10 parts"):
        world.result(request)


def test_a_guess_waits_for_room_and_a_replay_needs_none_for_parts_already_sent() -> None:
    world = world_with(ALWAYS, max_untaken_parts=1)
    request = world.submit(guarded, [1, 2])
    assert all(path.awaits_room and path.assumed for path in root_of(world, request).paths)
    world.finish(world.batches(check)[0])  # the guess was wrong: the workflow runs again, past the part that was sent
    assert world.num_parts[request] == 1
    assert finish_all(world, request) == [[1, 2], [2, 4]]
    assert world.answers[request] == []
    world.check_nothing_is_left()


def root_of(world: World, request_id: int) -> Any:
    return world.engine.tasks.requests[request_id].root
