"""A streaming workflow that is run again must yield the same parts."""

import itertools
from collections.abc import AsyncIterator

import pytest

import dyorc
from dyorc.errors import NondeterministicWorkflowError
from tests.unit.engine.programs import Vector, add_one, double
from tests.unit.engine.streaming_world import world_with

_runs = itertools.count()


@pytest.fixture(autouse=True)
def _restart() -> None:
    global _runs
    _runs = itertools.count()


def is_again() -> bool:
    """Returns False in the first run of a workflow and True in its replay: a workflow must not depend on such a value."""
    return next(_runs) % 2 == 1


@dyorc.workflow
async def other_part(x: Vector) -> AsyncIterator[Vector]:
    yield x
    yield double(x) if not is_again() else double(x)[::-1]


@dyorc.workflow
async def more_parts(x: Vector) -> AsyncIterator[Vector]:
    yield x
    if is_again():
        yield x


@dyorc.workflow
async def fewer_parts(x: Vector) -> AsyncIterator[Vector]:
    yield x
    if not is_again():
        yield x


@dyorc.workflow
async def part_before_a_call(x: Vector) -> AsyncIterator[Vector]:
    if is_again():
        yield x
        add_one(x)
    else:
        y = add_one(x)
        await y
        yield x


@dyorc.workflow
async def call_before_a_part(x: Vector) -> AsyncIterator[Vector]:
    if is_again():
        await add_one(x)
    yield x


@pytest.mark.parametrize(
    ("workflow", "words"),
    [
        (other_part, "came to part 1 of its answer with these arguments, where it had come to another part 1"),
        (more_parts, "came to part 1 of its answer with these arguments, where it had come to its end"),
        (fewer_parts, "came to its result with these arguments, where it had come to another part 1"),
        (part_before_a_call, "came to part 0 of its answer with these arguments, where it had come to a call of 'add_one'"),
        (call_before_a_part, "came to a call of 'add_one' with these arguments, where it had come to another part 0"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_check_of_determinism_compares_parts(workflow: dyorc.Workflow, words: str) -> None:
    world = world_with(is_taking=True)
    request = world.submit(workflow, [1, 2])
    world.finish_all()
    with pytest.raises(NondeterministicWorkflowError, match=words):
        world.result(request)
    assert world.part_values(request), "certain parts were sent before the check"
    world.check_nothing_is_left()


def test_without_the_check_a_stream_is_not_run_again() -> None:
    world = world_with(is_taking=True, max_determinism_checks=0)
    request = world.submit(other_part, [1, 2])
    world.finish_all()
    assert world.answers[request] == []
