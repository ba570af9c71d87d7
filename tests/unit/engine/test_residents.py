"""Residents: results that stay in their process, and calls that go where they are."""

from typing import Any

import pytest

import dyorc
from dyorc.core.tensor import DType
from dyorc.errors import WorkflowError
from tests.unit.engine.resident_world import Number, begin, chain, extend, fork, join, measure, world_with


def test_a_chain_ends_with_the_value_of_plain_python() -> None:
    world = world_with("P")
    request = world.submit(chain, 1.0)
    world.finish_all()
    assert world.result(request) == 8.0
    world.check_nothing_is_left()


def test_residents_are_released_as_the_chain_goes_on() -> None:
    world = world_with("P")
    world.submit(chain, 1.0, num_turns=20)
    while world.in_flight:
        world.finish()
        assert len(world.stored) <= 2
    world.check_nothing_is_left()


def test_two_continuations_of_one_resident() -> None:
    world = world_with("P")
    request = world.submit(fork, 2.0)
    world.finish_all()
    assert world.result(request) == 8.0
    world.check_nothing_is_left()


def test_what_stands_beside_a_resident_can_be_read_though_it_is_stored() -> None:
    @dyorc.workflow
    async def reading(x: Number) -> Number:
        total, numbers = extend(x, begin(x))
        if await total > 1:
            total, numbers = extend(x, numbers)
        return total

    world = world_with("P")
    world.is_storing = True
    request = world.submit(reading, 1.0)
    world.finish_all()
    assert world.result(request) == 3.0
    world.check_nothing_is_left()
    assert all(tensor.dtype is not DType.RESIDENT for tensors in world.fetches.values() for tensor in tensors)


async def _await(x: Any, numbers: Any) -> Any:
    return await numbers


async def _await_whole(x: Any, numbers: Any) -> Any:
    return await extend(x, numbers)


async def _gather(x: Any, numbers: Any) -> Any:
    return await dyorc.gather(x, numbers)


async def _decide(x: Any, numbers: Any) -> Any:
    return await dyorc.when(numbers, bool)


async def _choose(x: Any, numbers: Any) -> Any:
    return await dyorc.choose(numbers)


async def _return(x: Any, numbers: Any) -> Any:
    return numbers


async def _as_tensor(x: Any, numbers: Any) -> Any:
    return extend(numbers, numbers)[0]


async def _tensor_as_resident(x: Any, numbers: Any) -> Any:
    return extend(x, x)[0]


async def _number_as_resident(x: Any, numbers: Any) -> Any:
    return extend(x, 3.0)[0]


async def _view(x: Any, numbers: Any) -> Any:
    return extend(x, numbers[0])[0]


async def _whole(x: Any, numbers: Any) -> Any:
    return extend(x, extend(x, numbers))[0]


async def _other_group(x: Any, numbers: Any) -> Any:
    return measure(numbers)


async def _to_workflow(x: Any, numbers: Any) -> Any:
    return chain(numbers)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (_await, "awaits the resident 'output', which stays in the process"),
        (_await_whole, "awaits the resident 'output_1', .* one of .*; take the tensors one by one"),
        (_gather, "awaits the resident 'output'"),
        (_decide, "decides by the resident 'output'"),
        (_choose, "decides by the resident 'output'"),
        (_return, "a workflow neither takes nor returns one"),
        (_as_tensor, "'x' is a tensor, got the resident 'output' of program 'begin'"),
        (_tensor_as_resident, "'numbers' is a resident, got a tensor, 'x'"),
        (_number_as_resident, "'numbers' is a resident, got float; pass the Ref"),
        (_view, "'numbers' got a part of the resident 'output' of program 'begin'"),
        (_whole, r"'numbers' is a resident, got the whole of .*; pick one, like ref\[0\]"),
        (_other_group, "in group 'sums', not in 'others'; declare both programs with the same group"),
        (_to_workflow, "a workflow neither takes nor returns one"),
    ],
)
def test_misuse_is_refused_by_name(body: Any, text: str) -> None:
    @dyorc.workflow(programs=[begin, extend, join, measure])
    async def wrong(x: Number) -> Number:
        return await body(x, begin(x))

    world = world_with("P")
    request = world.submit(wrong, 1.0)
    world.finish_all()
    with pytest.raises(WorkflowError, match=text) as raised:
        world.result(request)
    assert "wrong" in str(raised.value)
    world.check_nothing_is_left()
