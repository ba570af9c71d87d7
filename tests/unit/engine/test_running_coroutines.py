"""Errors that name a line of user code while that code is running.

CPython 3.11 reads invalid memory if it is asked what a running coroutine or generator awaits. So the errors are made here many
times, each with another stack below, and the process has to live.
"""

import random
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.errors import NondeterministicWorkflowError, WorkflowError, WorkflowLimitError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, double, is_large, scale

_NUM_REQUESTS = 10


def world_with(**limits: Any) -> World:
    never = SpeculationConfig(enabled=False)
    world = World([add_one, double, scale], EngineConfig(max_determinism_checks=1000, speculation=never, **limits))
    for program in world.programs:
        world.join(program)
    return world


async def scale_at_random(x: Any) -> Any:
    await x
    return scale(x, random.random())


@dyorc.workflow
async def random_parameter(x: Vector) -> Vector:
    y = scale(x, random.random())
    if await dyorc.when(y, is_large):
        y = double(y)
    return add_one(y)


@dyorc.workflow
async def random_parameter_below(x: Vector) -> Vector:
    y = await scale_at_random(x)
    return add_one(y)


@dyorc.workflow
async def endless(x: Vector) -> Vector:
    while True:
        x = add_one(x)


async def add_for_ever(x: Any) -> Any:
    while True:
        x = add_one(x)
        await x


@dyorc.workflow
async def endless_below(x: Vector) -> Vector:
    return await add_for_ever(x)


@dyorc.workflow
async def endless_parts(x: Vector) -> AsyncIterator[Vector]:
    while True:
        x = add_one(x)
        yield x


@dyorc.workflow
async def endless_parts_below(x: Vector) -> AsyncIterator[Vector]:
    yield x
    yield await add_for_ever(x)


@dyorc.workflow
async def random_parts(x: Vector) -> AsyncIterator[Vector]:
    yield scale(x, random.random())


def submit_at_depth(world: World, workflow: dyorc.Workflow, depth: int) -> int:
    """Submits with more frames on the stack, so that each request leaves other things below its own."""
    return submit_at_depth(world, workflow, depth - 1) if depth else world.submit(workflow, [1, 1])


def line_of(function: Callable[..., Any], text: str) -> int:
    """Returns the line of a piece of text in a function of this file."""
    with open(__file__) as file:
        lines = file.read().splitlines()
    return next(at for at in range(function.__code__.co_firstlineno, len(lines)) if text in lines[at - 1])


@pytest.mark.parametrize(
    ("workflow", "function", "text", "kind"),
    [
        (random_parameter, random_parameter.function, "random.random", NondeterministicWorkflowError),
        (random_parameter_below, scale_at_random, "random.random", NondeterministicWorkflowError),
        (endless, endless.function, "add_one", WorkflowLimitError),
        (endless_below, add_for_ever, "add_one", WorkflowLimitError),
        (endless_parts, endless_parts.function, "add_one", WorkflowLimitError),
        (endless_parts_below, add_for_ever, "add_one", WorkflowLimitError),
        (random_parts, random_parts.function, "random.random", NondeterministicWorkflowError),
    ],
)
def test_an_error_in_running_code_names_its_line(
    workflow: dyorc.Workflow, function: Callable[..., Any], text: str, kind: type[WorkflowError]
) -> None:
    world = world_with(max_calls_per_request=20)
    for depth in range(_NUM_REQUESTS):
        request_id = submit_at_depth(world, workflow, depth % 7)
        world.finish_all()
        with pytest.raises(kind, match=re.escape(f"test_running_coroutines.py, line {line_of(function, text)}")):
            world.result(request_id)
