"""Programs that keep lists of numbers in their process, and a world whose processes run them."""

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.driver import World

NO_GUESSES = EngineConfig(speculation=SpeculationConfig(enabled=False))
Number = Float[np.ndarray, ""]
Numbers = Float[np.ndarray, " batch"]
Numerals = list[float]


@dyorc.program(max_batch_size=4, group="sums")
def begin(x: Numbers) -> dyorc.Resident[Numerals]:
    """Begins a list."""
    return [[float(each)] for each in x]


@dyorc.program(max_batch_size=4, group="sums")
def extend(x: Numbers, numbers: dyorc.Resident[Numerals]) -> tuple[Numbers, dyorc.Resident[Numerals]]:
    """Returns the sum of a longer list, and that list."""
    longer = [[*old, float(each)] for old, each in zip(numbers, x, strict=True)]
    return np.array([sum(each) for each in longer], np.float32), longer


@dyorc.program(max_batch_size=4, group="sums")
def join(first: dyorc.Resident[Numerals], second: dyorc.Resident[Numerals]) -> Numbers:
    """Returns the sum of two lists."""
    return np.array([sum(a) + sum(b) for a, b in zip(first, second, strict=True)], np.float32)


@dyorc.program(max_batch_size=4, group="others")
def measure(numbers: dyorc.Resident[Numerals]) -> Numbers:
    """Belongs to another group."""
    return np.array([len(each) for each in numbers], np.float32)


PROGRAMS = (begin, extend, join, measure)


def world_with(*processes: str, config: EngineConfig = NO_GUESSES) -> World:
    """Makes a world whose processes run all programs of the group. Replicas are named after their program and process."""
    world = World(PROGRAMS, config)
    for process in processes:
        add_process(world, process)
    return world


def add_process(world: World, process: str) -> None:
    """Lets a process join, with a replica of each program of the group."""
    for program in (begin, extend, join):
        world.join(program, f"{program.name}@{process}", process=process)


def end_process(world: World, process: str) -> None:
    """Lets a process die."""
    for program in (begin, extend, join):
        world.leave(f"{program.name}@{process}")


@dyorc.workflow
async def chain(x: Number, num_turns: int = 3) -> Number:
    """Extends a list by its sum again and again."""
    numbers, total = begin(x), x
    for _ in range(num_turns):
        total, numbers = extend(total, numbers)
    return total


@dyorc.workflow
async def fork(x: Number) -> Number:
    """Goes on twice from one list, and brings both together."""
    numbers = begin(x)
    _, first = extend(x, numbers)
    _, second = extend(x, numbers)
    return join(first, second)
