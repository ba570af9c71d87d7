"""Chains that go on while it is open whether they have ended."""

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.invariants.in_flight import scheduler_of
from tests.unit.engine.driver import World
from tests.unit.engine.resident_world import PROGRAMS, Number, Numbers, add_process, begin, extend
from tests.unit.engine.speculative_world import Says

_EAGER = EngineConfig(
    speculation=SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)
)


@dyorc.program(max_batch_size=4)
def look(x: Numbers) -> Numbers:
    """Takes its time, in these tests."""
    return x


def is_end(x: np.ndarray) -> bool:
    return bool(x >= 4)


@dyorc.workflow
async def until_four(x: Number) -> Number:
    """Doubles a sum until it is at least 4."""
    numbers = begin(x)
    while True:
        x, numbers = extend(x, numbers)
        if await dyorc.when(look(x), is_end, likely=False):
            return x


def guessing_world() -> World:
    world = World((*PROGRAMS, look), _EAGER, predictor=Says({False: 0.9, True: 0.05}))
    add_process(world, "P")
    world.join(look)
    for _ in range(3):
        world.submit(until_four, 8.0)
        while world.in_flight:
            world.advance(0.1)
            world.finish(execute_s=0.1)
    return world


def go_on_by_guesses(world: World) -> int:
    """Runs what the process is sent, and never what decides. Returns how many residents it holds then."""
    for _ in range(20):
        batch = next((each for each in world.in_flight.values() if each.program != look.name), None)
        if batch is None:
            break
        world.advance(0.1)
        world.finish(batch, 0.1)
    return len(scheduler_of(world.engine).processes.by_name["P"].residents)


@pytest.mark.parametrize("value", [1.0, 8.0], ids=["guessed right", "guessed wrong"])
def test_a_chain_goes_on_before_it_is_certain(value: float) -> None:
    world = guessing_world()
    request = world.submit(until_four, value)
    assert go_on_by_guesses(world) >= 1
    record = scheduler_of(world.engine).pools["extend"].record
    assert record.guesses.num_made
    world.finish_all()
    assert world.result(request) == (4.0 if value == 1.0 else 16.0)
    assert record.guesses.num_squashed
    world.check_nothing_is_left()
    assert not scheduler_of(world.engine).processes.by_name["P"].residents


def test_the_residents_of_guesses_go_with_a_cancelled_request() -> None:
    world = guessing_world()
    request = world.submit(until_four, 1.0)
    assert go_on_by_guesses(world)
    world.cancel(request)
    world.finish_all()
    assert not scheduler_of(world.engine).processes.by_name["P"].residents
    world.check_nothing_is_left()
