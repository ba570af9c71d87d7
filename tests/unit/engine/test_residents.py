"""Residents: results that stay in their process, and calls that go where they are."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import dyorc
from dyorc.core.tensor import DType
from dyorc.engine.invariants.in_flight import scheduler_of
from dyorc.errors import WorkflowError
from tests.unit.engine.driver import World
from tests.unit.engine.resident_world import (
    NO_GUESSES,
    PROGRAMS,
    Number,
    Numbers,
    add_process,
    begin,
    chain,
    end_process,
    extend,
    fork,
    join,
    measure,
    world_with,
)


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


@dyorc.workflow
async def keeping_tokens(x: Number, num_turns: int = 200) -> Number:
    """Keeps the tokens of all turns to the end."""
    numbers = begin(x)
    tokens: list[Any] = [x]
    for _ in range(num_turns):
        token, numbers = extend(tokens[-1], numbers)
        tokens.append(token)
        if await token > 1e30:
            break
    return (await dyorc.gather(*tokens))[-1]


@dyorc.workflow
async def yielding_tokens(x: Number, num_turns: int = 200) -> AsyncIterator[Number]:
    """Yields the token of each turn."""
    numbers, tokens = begin(x), [x]
    for _ in range(num_turns):
        token, numbers = extend(tokens[-1], numbers)
        tokens.append(token)
        yield token


@pytest.mark.parametrize("is_storing", [False, True])
@pytest.mark.parametrize("workflow", [keeping_tokens, yielding_tokens])
def test_a_token_does_not_keep_the_resident_beside_it(workflow: dyorc.Workflow, is_storing: bool) -> None:
    world = world_with("P")
    world.is_storing = is_storing
    world.submit(workflow, 0.0)
    most = 0
    while world.in_flight:
        world.finish()
        most = max(most, sum(block[0] == "P" for block in world.stored))
    assert 1 <= most <= 2
    world.check_nothing_is_left()


def test_a_chain_that_is_made_again_needs_no_more_room_than_it_did_at_first() -> None:
    world = world_with("P")
    request = world.submit(chain, 0.0, num_turns=40)
    for _ in range(38):
        world.finish()
    end_process(world, "P")
    add_process(world, "Q")
    most = 0
    while world.in_flight:
        world.finish()
        most = max(most, sum(block[0] == "Q" for block in world.stored))
    assert world.result(request) == 0.0
    assert 1 <= most <= 2
    world.check_nothing_is_left()


def test_what_was_released_was_not_lost() -> None:
    @dyorc.program
    def pause(x: Numbers) -> Numbers:
        return x

    @dyorc.workflow
    async def pausing(x: Number) -> Number:
        numbers = begin(x)
        for _ in range(6):
            x, numbers = extend(x, numbers)
            x = pause(x)
        return x

    world = World((*PROGRAMS, pause), NO_GUESSES)
    add_process(world, "P")
    world.join(pause)
    request = world.submit(pausing, 1.0)
    scheduler = scheduler_of(world.engine)
    while world.in_flight:
        if world.batches(pause):
            scheduler.evict(list(scheduler.processes.by_name["P"].residents))
        world.finish()
    assert world.result(request) == 64.0
    assert len(world.history) > 30
    world.check_nothing_is_left()
