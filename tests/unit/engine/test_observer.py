"""What an observer of requests is told: each arrival, each call once it is certain, and each end, once and in this order."""

from dataclasses import dataclass, field
from typing import TypeAlias

from dyorc.engine.engine_context import Host
from dyorc.engine.events import RequestCancelled
from tests.unit.engine.driver import World
from tests.unit.engine.programs import add_one, double, increment, increment_twice
from tests.unit.engine.speculative_world import BAD, GOOD, YES, guarded, world_with

Story: TypeAlias = list[tuple[object, ...]]


@dataclass
class Told:
    """Writes down what it is told."""

    story: Story = field(default_factory=list[tuple[object, ...]])

    def arrived(self, request_id: int, workflow: str, now_ns: int) -> None:
        self.story.append(("arrived", request_id, workflow))

    def called(self, request_id: int, program: str, now_ns: int) -> None:
        self.story.append(("called", request_id, program))

    def ended(self, request_id: int, now_ns: int) -> None:
        self.story.append(("ended", request_id))


def observed(*, is_placing: bool = False) -> tuple[World, Story]:
    told = Told()
    return World([add_one, double], host=Host(observer=told), is_placing=is_placing), told.story


def test_a_request_is_told_from_its_arrival_to_its_end() -> None:
    world, story = observed()
    world.join(add_one)
    world.submit(increment_twice, [1, 1])
    world.finish_all()
    assert story == [("arrived", 1, "increment_twice"), ("called", 1, "add_one"), ("called", 1, "add_one"), ("ended", 1)]


def test_calls_of_a_cold_program_are_told() -> None:
    world, story = observed()
    world.want(add_one, 0)
    world.submit(increment, [1, 1])
    assert ("called", 1, "add_one") in story


def guessing_world() -> tuple[World, Story]:
    """Returns a world that guesses that a request of `guarded` calls `double`."""
    told = Told()
    world = world_with(YES, host=Host(observer=told))
    return world, told.story


def test_a_guess_is_told_when_it_turns_out_right() -> None:
    world, story = guessing_world()
    world.submit(guarded, GOOD)
    assert len(world.batches(double)) == 1, "nothing was guessed"
    assert story == [("arrived", 1, "guarded"), ("called", 1, "check")]
    world.finish_all()
    assert story[2:] == [("called", 1, "double"), ("ended", 1)]


def test_a_guess_that_turns_out_wrong_is_never_told() -> None:
    world, story = guessing_world()
    world.submit(guarded, BAD)
    assert len(world.batches(double)) == 1, "nothing was guessed"
    world.finish_all()
    assert story[2:] == [("called", 1, "add_one"), ("ended", 1)]


def test_a_call_that_is_run_again_is_told_once() -> None:
    world, story = observed(is_placing=True)
    first = world.join(add_one)
    world.submit(increment_twice, [1, 1])
    world.finish()
    world.leave(first)
    world.join(add_one)
    world.finish_all()
    assert story.count(("called", 1, "add_one")) == 2
    assert story[-1] == ("ended", 1)


def test_a_cancelled_request_ends() -> None:
    world, story = observed()
    world.submit(increment, [1, 1])
    world.tell(RequestCancelled(1))
    assert story[-1] == ("ended", 1)


def test_a_request_without_room_is_not_told() -> None:
    world, story = observed()
    events = [world.arrival(increment, [1, 1]) for _ in range(world.config.max_requests + 1)]
    world.tell(*events)
    assert sum(event[0] == "arrived" for event in story) == world.config.max_requests


def test_requests_of_an_engine_that_is_given_up_end() -> None:
    world, story = observed()
    world.submit(increment, [1, 1])
    world.engine.give_up()
    assert story[-1] == ("ended", 1)
