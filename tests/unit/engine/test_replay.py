"""Running a workflow again against its journal."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.errors import NondeterministicWorkflowError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, cascade, double, is_large, scale

_runs: Iterator[int] = itertools.count()


def is_again() -> bool:
    """Returns False on the first call of a test and True on the next: a workflow must not depend on such a value."""
    return next(_runs) % 2 == 1


@pytest.fixture(autouse=True)
def _restart() -> None:
    global _runs
    _runs = itertools.count()


def world_with(max_determinism_checks: int = 3) -> World:
    never = SpeculationConfig(enabled=False)  # a guess runs a workflow again, too
    world = World([add_one, double, scale], EngineConfig(max_determinism_checks=max_determinism_checks, speculation=never))
    for program in world.programs:
        world.join(program)
    return world


@dyorc.workflow
async def other_call(x: Vector) -> Vector:
    program = double if is_again() else add_one
    return program(x)


@dyorc.workflow
async def other_argument(x: Vector) -> Vector:
    return add_one(x[::-1] if is_again() else x)


@dyorc.workflow
async def other_literal(x: Vector) -> Vector:
    await x
    return add_one([1, 2] if is_again() else [1, 3])


@dyorc.workflow
async def other_parameter(x: Vector) -> Vector:
    return scale(x, 3.0 if is_again() else 2.0)


@dyorc.workflow
async def other_decision(x: Vector) -> Vector:
    y = double(x)
    z = y if is_again() else x
    return add_one(x) if await dyorc.when(z, is_large) else y


@dyorc.workflow
async def other_kind_of_decision(x: Vector) -> Vector:
    y = double(x)
    if is_again():
        y = add_one(x)
    elif await dyorc.when(y, is_large):
        return x
    return y


@dyorc.workflow
async def other_result(x: Vector) -> Vector:
    y = add_one(x)
    z = double(x)
    await dyorc.gather(y, z)
    return z if is_again() else y


@dyorc.workflow
async def extra_call(x: Vector) -> Vector:
    y = add_one(x)
    if is_again():
        double(x)
    return y


@dyorc.workflow
async def missing_call(x: Vector) -> Vector:
    y = add_one(x)
    if not is_again():
        double(x)
    return y


@dyorc.workflow
async def other_wait(x: Vector) -> Vector:
    y, z = add_one(x), double(double(x))
    await (z if is_again() else y)
    return z


@dyorc.workflow
async def catches_everything(x: Vector) -> Vector:
    try:
        return double(x) if is_again() else add_one(x)
    except Exception:
        return x


@pytest.mark.parametrize(
    ("workflow", "now", "before", "lines_down"),
    [
        (other_call, "a call of 'double'", "a call of 'add_one'", 3),
        (other_argument, "a call of 'add_one'", "a call of 'add_one'", 2),
        (other_literal, "a call of 'add_one'", "a call of 'add_one'", 3),
        (other_parameter, "a call of 'scale'", "a call of 'scale'", 2),
        (other_decision, r"a decision by dyorc\.when", r"a decision by dyorc\.when", 4),
        (other_kind_of_decision, "a call of 'add_one'", r"a decision by dyorc\.when", 4),
        (other_result, "its result", "another result", None),
        (extra_call, "a call of 'double'", "another result", 4),
        (missing_call, "its result", "a call of 'double'", None),
        (other_wait, "a value that it had not looked at", "another result", 3),
        (catches_everything, "a call of 'double'", "a call of 'add_one'", 3),
    ],
    ids=lambda value: value.name if isinstance(value, dyorc.Workflow) else "",
)
def test_a_run_that_differs_from_the_first_is_an_error_that_names_the_line(
    workflow: dyorc.Workflow, now: str, before: str, lines_down: int | None
) -> None:
    world = world_with()
    request_id = world.submit(workflow, [1, 2])
    world.finish_all()
    line = r"\d+" if lines_down is None else str(workflow.function.__code__.co_firstlineno + lines_down)
    with pytest.raises(
        NondeterministicWorkflowError,
        match=rf"'{workflow.name}' is not deterministic.*came to {now} .*"
        rf"had come to {before}( with other arguments)? \(test_replay\.py, line {line}\)",
    ):
        world.result(request_id)
    world.check_nothing_is_left()


@pytest.mark.parametrize(
    ("workflow", "name"),
    [(other_argument, "x"), (other_literal, "x"), (other_parameter, "factor")],
    ids=["view", "literal", "static"],
)
def test_an_argument_that_differs_is_named(workflow: dyorc.Workflow, name: str) -> None:
    world = world_with()
    request_id = world.submit(workflow, [1, 2])
    world.finish_all()
    with pytest.raises(NondeterministicWorkflowError, match=rf"; '{name}' differed$"):
        world.result(request_id)


def counting(counts: list[int]) -> dyorc.Workflow:
    @dyorc.workflow
    async def counted(x: Vector) -> Vector:
        counts.append(1)
        y = add_one(x)
        return double(x) if await dyorc.when(y, is_large) else y

    return counted


def test_only_the_first_requests_of_a_workflow_are_run_again() -> None:
    world, counts = world_with(max_determinism_checks=2), list[int]()
    workflow = counting(counts)
    for _ in range(5):
        request_id = world.submit(workflow, [1, 2])
        world.finish_all()
        assert np.array_equal(world.result(request_id), [2, 3])
    assert len(counts) == 5 + 2


def test_a_workflow_that_differs_is_refused_however_often_it_is_asked() -> None:
    world = world_with(max_determinism_checks=2)
    for _ in range(4):
        request_id = world.submit(other_call, [1, 2])
        world.finish_all()
        with pytest.raises(NondeterministicWorkflowError):
            world.result(request_id)


def test_the_check_can_be_switched_off() -> None:
    world = world_with(max_determinism_checks=0)
    request_id = world.submit(other_call, [1, 2])
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 3])


def test_a_replay_runs_no_program_again() -> None:
    world = world_with()
    for x in ([0, 0], [9, 9]):
        world.submit(cascade, x)
        world.finish_all()
    assert world.sizes(add_one) == [1, 1]
    assert world.sizes(double) == [1]
