"""What a workflow changes after it has asked or called does not change what it asked, or what it handed over."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import dyorc
from tests.unit.engine import speculative_world, streaming_world
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add, add_one, double, scale


@dyorc.workflow
async def climbs(x: Vector) -> Vector:
    for turn in range(3):
        if await dyorc.when(add_one(x), lambda value: bool(value[0] > turn)):  # noqa: B023 (as users write it)
            x = double(x)
    return x


@pytest.mark.parametrize("start", [0.0, 1.0, 5.0])
def test_a_predicate_reads_variables_as_they_were_when_it_was_asked(start: float) -> None:
    """Under a guess the run goes on to the next turn before the first decision is taken."""
    expected = np.array([start, 0])
    for turn in range(3):
        if expected[0] + 1 > turn:
            expected *= 2
    world = speculative_world.world_with()
    request = world.submit(climbs, [start, 0])
    world.finish_all()
    np.testing.assert_array_equal(world.result(request), expected)


@dyorc.workflow
async def reuses_memory(x: Vector) -> Vector:
    memory = np.zeros(2, np.float32)
    first = add_one(memory)
    memory[:] = 5
    second = scale(memory[::-1], 1.0)
    memory[:] = 7
    return add(first, second)


def test_a_call_gets_an_array_as_it_was_when_it_was_called() -> None:
    world = World([add_one, scale, add])
    for program in world.programs:
        world.join(program)
    request = world.submit(reuses_memory, [0, 0])
    world.finish_all()
    np.testing.assert_array_equal(world.result(request), [6, 6])


def read_only_views_of(memory: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Returns arrays that cannot be written to, and change with the memory."""
    switched_off = memory[:]
    switched_off.flags.writeable = False
    return [
        switched_off,
        np.broadcast_to(memory, (1, 2))[0],
        np.lib.stride_tricks.sliding_window_view(memory, 2)[0],
        np.frombuffer(memory.data.toreadonly(), np.float32),
    ]


@dyorc.workflow
async def hands_over_views(x: Vector) -> Vector:
    memory = np.zeros(2, np.float32)
    results: list[Any] = [x]
    for turn in (1, 2):
        memory[:] = turn
        results += dyorc.map(add_one, read_only_views_of(memory))
    memory.flags.writeable = False
    results.append(add_one(memory))
    memory.flags.writeable = True
    memory[:] = 9
    return sum_of(await dyorc.gather(*results))


def sum_of(values: Any) -> np.ndarray[Any, Any]:
    return np.sum(values, axis=0, dtype=np.float32)


def test_a_call_gets_what_a_read_only_view_showed_when_it_was_called() -> None:
    world = World([add_one])
    world.join(add_one)
    request = world.submit(hands_over_views, [0, 0])
    world.finish_all()
    expected = 4 * (1 + 1) + 4 * (2 + 1) + (2 + 1)
    np.testing.assert_array_equal(world.result(request), [expected, expected])


@dyorc.workflow
async def yields_memory(x: Vector) -> AsyncIterator[Vector]:
    memory = np.zeros(2, np.float32)
    for turn in range(3):
        memory[:] = turn
        yield memory


def test_a_part_is_what_it_was_when_it_was_yielded() -> None:
    world = streaming_world.world_with()
    request = world.submit(yields_memory, [0, 0])
    parts: list[Any] = streaming_world.take_all(world, request)
    assert parts == [[0, 0], [1, 1], [2, 2]]
