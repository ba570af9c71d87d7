"""A failure in a stream ends it after the parts before the failure. Every end closes the generator."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

import dyorc
from dyorc.engine.events import PartTaken
from dyorc.errors import DeadlineError, ProgramError, RequestCancelledError, WorkflowError
from tests.unit.engine.programs import Vector, add_one, check, double, is_large, send
from tests.unit.engine.streaming_world import ALWAYS, finish_all, five, log, take_all, world_with


def test_a_part_whose_tensors_fail_ends_the_request_after_the_parts_before_it() -> None:
    @dyorc.workflow
    async def bad_second(x: Vector) -> AsyncIterator[Vector]:
        try:
            yield add_one(x)
            yield check(x)
            yield x
            await double(x)
            log.append("never")
        finally:
            log.append("closed")

    world = world_with()
    request = world.submit(bad_second, [-1, 2])
    world.finish(world.batches(check)[0])
    assert not log
    world.finish(world.batches(add_one)[0])
    assert log == ["closed"]
    assert request not in world.answers
    assert take_all(world, request) == [[0, 3]]
    with pytest.raises(ProgramError, match="negative"):
        world.result(request)
    world.finish_all()
    world.check_nothing_is_left()


def test_an_error_in_the_generator_ends_the_request_after_the_parts_before_it() -> None:
    @dyorc.workflow
    async def raises(x: Vector) -> AsyncIterator[Vector]:
        yield add_one(x)
        yield double(x)
        raise KeyError("lost")

    world = world_with()
    request = world.submit(raises, [1, 2])
    assert request not in world.answers
    assert finish_all(world, request) == [[2, 3], [2, 4]]
    with pytest.raises(WorkflowError, match=r"'raises' raised KeyError: 'lost' \(test_streams_failures.py, line \d+\)"):
        world.result(request)
    world.check_nothing_is_left()


def test_a_failure_can_be_caught_between_parts() -> None:
    @dyorc.workflow
    async def careful(x: Vector) -> AsyncIterator[Vector]:
        try:
            await check(x)
        except ProgramError:
            yield x
        yield add_one(x)

    world = world_with()
    request = world.submit(careful, [-1, 2])
    assert finish_all(world, request) == [[-1, 2], [0, 3]]
    assert world.answers[request] == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda x: x[:1], r"yielded as part 1: 'output' has 1 for dimension|yielded as part 1"),
        (lambda x: "text", "yielded something that is not a result"),
        (lambda x: None, "yielded something that is not a result"),
    ],
    ids=["shape", "text", "nothing"],
)
def test_a_part_that_does_not_match_its_declaration_is_the_workflows_error(value: Any, words: str) -> None:
    @dyorc.workflow
    async def misfit(x: Vector) -> AsyncIterator[Vector]:
        yield x
        yield value(x)

    world = world_with()
    request = world.submit(misfit, [1, 2])
    assert take_all(world, request) == [[1, 2]]
    with pytest.raises(WorkflowError, match=words):
        world.result(request)


def test_effects_still_finish_when_a_part_fails() -> None:
    @dyorc.workflow
    async def sends(x: Vector) -> AsyncIterator[Vector]:
        send(x)
        yield check(x)

    world = world_with()
    request = world.submit(sends, [-1, 2])
    world.finish(world.batches(check)[0])
    with pytest.raises(ProgramError):
        world.result(request)
    world.finish()
    assert world.sizes(send) == [1]
    world.check_nothing_is_left()


def test_guesses_are_withdrawn_when_a_part_fails() -> None:
    @dyorc.workflow
    async def guesses(x: Vector) -> AsyncIterator[Vector]:
        yield check(x)
        if await dyorc.when(double(x), is_large, likely=True):
            yield add_one(send(add_one(x)))

    world = world_with(ALWAYS)
    request = world.submit(guesses, [-1, 2])
    world.finish(world.batches(add_one)[0])
    world.finish(world.batches(check)[0])
    with pytest.raises(ProgramError):
        world.result(request)
    world.finish_all()
    assert not world.sizes(send)
    world.check_nothing_is_left()


@pytest.mark.parametrize("end", ["cancel", "deadline"])
@pytest.mark.parametrize("place", ["at a yield", "at a value", "at a decision", "in a helper"])
def test_a_request_that_ends_mid_stream_closes_its_generator(end: str, place: str) -> None:
    async def helper(x: Any) -> AsyncIterator[Any]:
        try:
            yield x
            yield x
        finally:
            log.append("helper closed")

    @dyorc.workflow
    async def interrupted(x: Vector) -> AsyncIterator[Vector]:
        try:
            yield x
            match place:
                case "at a value":
                    await add_one(x)
                case "at a decision":
                    await dyorc.when(add_one(x), is_large)
                case "in a helper":
                    async for part in helper(x):
                        yield part
                case _:
                    yield add_one(x)
        finally:
            log.append("closed")
            await double(x)
            log.append("never")

    world = world_with(max_untaken_parts=1)
    request = world.submit(interrupted, [1, 2], deadline_s=5.0)
    if end == "cancel":
        world.cancel(request)
    else:
        world.advance(6)
    assert log == (["helper closed"] if place == "in a helper" else []) + ["closed"] or log == ["closed", "helper closed"]
    with pytest.raises(RequestCancelledError if end == "cancel" else DeadlineError):
        world.result(request)
    assert request not in world.waiting_parts
    world.finish_all()
    world.check_nothing_is_left()


def test_a_part_taken_after_the_end_is_ignored() -> None:
    world = world_with()
    request = world.submit(five, [0, 0])
    world.cancel(request)
    world.tell(PartTaken(request, 0), PartTaken(99, 0))
    world.finish_all()
    world.check_nothing_is_left()


def test_the_event_loop_does_not_manage_the_generators() -> None:
    """asyncio would close the generators later and in its own way, and fail."""

    async def run() -> int:
        world = world_with(max_untaken_parts=1)
        request = world.submit(five, [0, 0])
        loop = asyncio.get_running_loop()
        num_known = len(loop._asyncgens)  # pyright: ignore
        hooks = sys.get_asyncgen_hooks()
        assert hooks.finalizer is not None
        world.cancel(request)
        world.finish_all()
        world.check_nothing_is_left()
        return num_known

    assert asyncio.run(run()) == 0
