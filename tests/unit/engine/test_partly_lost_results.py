"""Results of which only a part is lost: the rest stays where it is, because calls that wait are about to read it."""

from collections.abc import Iterator

import numpy as np

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, double
from tests.unit.engine.resident_world import Number, Numbers, Numerals

NO_GUESSES = EngineConfig(speculation=SpeculationConfig(enabled=False))


@dyorc.program(max_batch_size=4, group="overwriting")
def start(x: Numbers) -> tuple[Numbers, dyorc.Resident[Numerals]]:
    return x + 1, [[float(each)] for each in x]


@dyorc.program(max_batch_size=4, group="overwriting")
def push(x: Numbers, numbers: dyorc.Resident[Numerals, dyorc.Consumed]) -> Numbers:
    for each, value in zip(numbers, x, strict=True):
        each.append(float(value))
    return np.array([sum(each) for each in numbers], np.float32)


@dyorc.program(max_batch_size=4)
def late(x: Numbers) -> Numbers:
    return 10 * x


@dyorc.workflow
async def reading_beside(x: Number) -> tuple[Number, Number, Number]:
    beside, numbers = start(x)
    return late(beside), push(x, numbers), push(x, numbers)


def test_a_queued_call_reads_the_tensor_beside_a_resident_that_is_made_again() -> None:
    """The first `push` overwrites the resident, so `start` runs again for the second, while `late` waits for a replica."""
    world = World((start, push, late), NO_GUESSES, is_placing=True)
    for program in (start, push):
        world.join(program, process="P")
    request = world.submit(reading_beside, 1.0)
    world.finish_all()
    assert world.sizes(start) == [1, 1]
    world.join(late)
    world.finish_all()
    assert [float(each) for each in world.result(request)] == [20.0, 2.0, 2.0]
    world.check_nothing_is_left()


@dyorc.program(batched=False)
def pairs(x: Vector) -> Iterator[tuple[Vector, Vector]]:
    for number in range(3):
        yield x + number, x - number


@dyorc.workflow
async def reading_halves(x: Vector) -> tuple[Vector, Vector]:
    first = second = x
    async for part in pairs(x):
        first, second = add_one(part[0]), double(part[1])
    return first, second


def test_a_queued_call_reads_the_half_of_a_part_whose_other_half_is_made_again() -> None:
    world = World((pairs, double, add_one), NO_GUESSES, is_placing=True)
    world.join(pairs)
    request = world.submit(reading_halves, [1, 1])
    world.finish_all()
    world.vanish(max(world.stored))  # the second tensor of the last part; the first one waits for a replica of `add_one`
    world.join(double)
    while batch := world.next_batch():
        if batch.lost:
            world.lose_inputs(batch, batch.lost)
        else:
            world.finish(batch)
    assert world.sizes(pairs) == [1, 1]
    world.join(add_one)
    world.finish_all()
    assert [each.tolist() for each in world.result(request)] == [[4, 4], [-2, -2]]
    world.check_nothing_is_left()
