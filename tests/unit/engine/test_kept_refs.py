"""Refs and Streams that a workflow keeps beyond its request: later requests may not use them, wherever they enter."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.errors import WorkflowError
from tests.unit.engine.resident_world import Number, begin, extend, world_with

V = Float[np.ndarray, ""]


@dyorc.program(max_batch_size=8)
def twice(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return 2 * x


@dyorc.program(batched=False)
async def count(x: V) -> AsyncIterator[V]:
    for at in range(3):
        yield x + at


@dyorc.program(batched=False)
async def total(parts: AsyncIterator[V]) -> V:
    return np.asarray(sum([float(part) async for part in parts]), np.float32)


@dyorc.workflow
async def inner(x: V) -> V:
    return twice(x)


def _refused(use: Callable[[Any], Any], make: Callable[[Any], Any]) -> None:
    """Runs two requests: the first keeps something, the second uses that of the first."""
    kept: list[Any] = []

    @dyorc.workflow(programs=[twice, count, total])
    async def keeps(x: V) -> V:
        kept.append(make(x))
        result = use(kept[0])
        return (await result) if hasattr(type(result), "__await__") else result

    dyorc.run(keeps, np.float32(1))
    with pytest.raises(WorkflowError, match="of another request") as caught:
        dyorc.run(keeps, np.float32(5))
    assert "keeps" in str(caught.value)


def _name(use: Any) -> str:
    return getattr(use, "__name__", None) or use.name


def _itself(ref: Any) -> Any:
    return ref


async def _when(ref: Any) -> Any:
    await dyorc.when(ref, lambda value: value > 0)
    return np.float32(0)


async def _choose(ref: Any) -> Any:
    await dyorc.choose(ref, float)
    return np.float32(0)


async def _gather(ref: Any) -> Any:
    return (await dyorc.gather(ref))[0]


async def _loop(stream: Any) -> Any:
    values = [await part async for part in stream]
    return values[0]


async def _collect(stream: Any) -> Any:
    return (await dyorc.collect(stream))[0]


@pytest.mark.parametrize("use", [_itself, twice, inner, _when, _choose, _gather], ids=_name)
@pytest.mark.parametrize("make", [twice, inner, _itself], ids=["of a program", "of a workflow", "an input"])
def test_a_ref_that_was_kept_is_refused(use: Callable[[Any], Any], make: Callable[[Any], Any]) -> None:
    _refused(use, make)


@pytest.mark.parametrize("use", [_loop, _collect, total], ids=_name)
def test_a_stream_that_was_kept_is_refused(use: Callable[[Any], Any]) -> None:
    _refused(use, count)


def test_a_ref_that_was_kept_cannot_be_returned_or_yielded() -> None:
    kept: list[Any] = []

    @dyorc.workflow
    async def returns(x: V) -> V:
        kept.append(twice(x))
        return kept[0]

    @dyorc.workflow
    async def yields(x: V) -> AsyncIterator[V]:
        kept.append(twice(x))
        yield kept[0]

    dyorc.run(returns, np.float32(1))
    with pytest.raises(WorkflowError, match=r"returned .*of another request"):
        dyorc.run(returns, np.float32(1))
    with pytest.raises(WorkflowError, match=r"yielded .*of another request"):
        list(dyorc.run(yields, np.float32(1)))


def test_nested_workflows_and_helpers_of_one_request_share_their_refs() -> None:
    shared: list[Any] = []

    async def helper() -> Any:
        return await shared[-1]

    @dyorc.workflow
    async def reads(x: V) -> V:
        return twice(await helper() + np.float32(0))

    @dyorc.workflow
    async def outer(x: V) -> V:
        shared.append(twice(x))
        return reads(shared[-1])

    assert dyorc.run(outer, np.float32(1)) == 4
    assert dyorc.run(outer, np.float32(3)) == 12


def test_a_resident_that_was_kept_is_refused() -> None:
    kept: list[Any] = []

    @dyorc.workflow
    async def extends(x: Number) -> Number:
        kept.append(begin(x))
        total, _ = extend(x, kept[0])
        return total

    world = world_with("P")
    first = world.submit(extends, 1.0)
    world.finish_all()
    assert not isinstance(world.answers[first], Exception)
    second = world.submit(extends, 1.0)
    world.finish_all()
    error = world.answers[second]
    assert isinstance(error, WorkflowError)
    assert "a Ref of another request" in str(error)
    assert "line" in str(error)
