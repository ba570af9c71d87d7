"""No mistake of a user's function may end the engine: it fails its request, and the others go on."""

import functools
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.core.request import Terms
from dyorc.engine.events import RequestArrived
from dyorc.errors import DyOrcError, ProgramError, WorkflowError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, double

X = np.array([1, 2], np.float32)
Part = Float[np.ndarray, "2"]


def without_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that shows the signature of what it wraps, and passes nothing on."""

    @functools.wraps(function)
    async def wrapper() -> Any:
        return await function()

    return wrapper


@dyorc.workflow
@without_arguments
async def miscalled(x: Vector) -> Vector:
    return x


@dyorc.workflow
async def calls_miscalled(x: Vector) -> Vector:
    return add_one(await miscalled(x))


@dyorc.workflow
async def takes_stream(parts: AsyncIterator[Part]) -> AsyncIterator[Part]:
    async for part in parts:
        yield part


@dyorc.workflow
async def honest(x: Vector) -> Vector:
    return add_one(x)


class Textless:
    """An outcome of a decision whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@dyorc.workflow
async def textless(x: Vector) -> Vector:
    await dyorc.choose(x, lambda _: Textless())  # pyright: ignore[reportArgumentType]
    await dyorc.choose(double(x), lambda _: Textless())
    return x


@dyorc.workflow
async def unlikely(x: Vector) -> Vector:
    if await dyorc.when(double(x), lambda value: bool(value.sum() > 0), likely=np.array([1, 2])):  # pyright: ignore[reportArgumentType]
        return x
    return double(x)


class Hidden:
    """Keeps workflows where reading the code does not find them."""

    __slots__ = ("flow",)

    def __init__(self, flow: Workflow) -> None:
        self.flow = flow


add_one_again = add_one.with_options(max_batch_size=2)


@dyorc.workflow
async def two_of_one_name(x: Vector) -> Vector:
    return add_one(add_one_again(x))


hidden = Hidden(two_of_one_name)


@dyorc.workflow
async def calls_hidden(x: Vector) -> Vector:
    return hidden.flow(x)


@dataclass
class Leaving:
    """A result that ends the process when it is read."""

    y: Any

    def __getattribute__(self, name: str) -> Any:
        if name == "y":
            sys.exit(3)
        return super().__getattribute__(name)


@dataclass
class Result:
    y: Float[np.ndarray, "2"]


@dyorc.workflow
async def leaves(x: Vector) -> Result:
    class Mine(Result, Leaving): ...

    result = object.__new__(Mine)
    result.y = x
    return result


def world_with_a_request_in_flight() -> tuple[World, int]:
    world = World([add_one, double])
    world.join(add_one)
    return world, world.submit(honest, X)


def assert_alone(world: World, others: int, request: int) -> DyOrcError:
    """Checks that one request fails, and that the other one in flight and a later one are answered."""
    error = world.answers[request]
    assert isinstance(error, DyOrcError)
    later = world.submit(honest, X)
    world.finish_all()
    for answered in (others, later):
        answer = world.answers[answered]
        assert not isinstance(answer, DyOrcError)
        assert answer[0].tolist() == [2, 3]
    return error


@pytest.mark.parametrize("workflow", [miscalled, calls_miscalled, calls_hidden, leaves])
def test_a_workflow_that_cannot_be_called_or_read_fails_its_request_alone(workflow: Workflow) -> None:
    world, other = world_with_a_request_in_flight()
    error = assert_alone(world, other, world.submit(workflow, X))
    assert isinstance(error, WorkflowError)


def test_the_error_names_the_workflow_and_what_was_wrong() -> None:
    with pytest.raises(WorkflowError, match=r"workflow 'miscalled' raised TypeError: .*takes 0 positional arguments.*py, line"):
        dyorc.run(miscalled, X)
    world, _ = world_with_a_request_in_flight()
    assert "calls two programs named 'add_one'" in str(world.answers[world.submit(calls_hidden, X)])


def test_a_request_for_a_workflow_that_takes_a_stream_fails_alone() -> None:
    """No server offers one; the engine does not rely on that."""
    world, other = world_with_a_request_in_flight()
    world.workflows[99] = takes_stream
    world.tell(RequestArrived(99, takes_stream, (), (), Terms()))
    assert isinstance(assert_alone(world, other, 99), WorkflowError)


def test_an_outcome_without_a_text_is_recorded() -> None:
    world, other = world_with_a_request_in_flight()
    world.join(double)
    request = world.submit(textless, X, explain=True)
    world.finish_all()
    assert world.answers[request][0].tolist() == [1, 2]  # type: ignore[index]
    outcomes = [step["outcome"] for step in world.stories[request].steps() if "outcome" in step]
    assert set(outcomes) == {"a Textless"}
    assert not isinstance(world.answers[other], DyOrcError)


def test_a_likely_outcome_that_is_no_bool_is_the_workflows_error() -> None:
    world, other = world_with_a_request_in_flight()
    error = assert_alone(world, other, world.submit(unlikely, X))
    assert "raised ValueError" in str(error)


def leave_process(x: Any) -> float:
    sys.exit(3)


@dyorc.program(max_batch_cost=10, cost=leave_process)
def costly(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x


@dyorc.workflow
async def pay(x: Vector) -> Vector:
    return costly(x)


def test_a_cost_that_ends_the_process_fails_its_call_alone() -> None:
    world = World([add_one, costly])
    world.join(add_one)
    other = world.submit(honest, X)
    assert isinstance(assert_alone(world, other, world.submit(pay, X)), ProgramError)
