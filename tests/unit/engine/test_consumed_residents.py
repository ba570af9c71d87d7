"""Programs that overwrite the resident they are given."""

import numpy as np
from jaxtyping import Float

import dyorc
from tests.unit.engine.driver import World
from tests.unit.engine.resident_world import NO_GUESSES, Number, Numbers, Numerals


@dyorc.program(max_batch_size=4, group="overwriting")
def start(x: Numbers) -> dyorc.Resident[Numerals]:
    return [[float(each)] for each in x]


@dyorc.program(max_batch_size=4, group="overwriting")
def push(x: Numbers, numbers: dyorc.Resident[Numerals, dyorc.Consumed]) -> tuple[Numbers, dyorc.Resident[Numerals]]:
    """Appends to the list that it is given."""
    assert len({id(each) for each in numbers}) == len(numbers)
    for each, value in zip(numbers, x, strict=True):
        each.append(float(value))
    return np.array([sum(each) for each in numbers], np.float32), list(numbers)


@dyorc.program(max_batch_size=4, group="overwriting")
def length(numbers: dyorc.Resident[Numerals]) -> Float[np.ndarray, " batch"]:
    return np.array([len(each) for each in numbers], np.float32)


def run(workflow: dyorc.Workflow, *values: float) -> list[float]:
    world = World((start, push, length), NO_GUESSES)
    for program in (start, push, length):
        world.join(program, process="P")
    requests = world.submit_all(workflow, values)
    world.finish_all()
    world.check_nothing_is_left()
    return [float(world.result(request)) for request in requests]


def test_a_chain_overwrites_its_resident() -> None:
    @dyorc.workflow
    async def chain(x: Number) -> Number:
        numbers = start(x)
        for _ in range(4):
            x, numbers = push(x, numbers)
        return x

    assert run(chain, 1.0, 2.0, 3.0) == [16.0, 32.0, 48.0]


def test_others_that_need_it_have_it_made_again() -> None:
    @dyorc.workflow
    async def fork(x: Number) -> tuple[Number, Number, Number]:
        numbers = start(x)
        first, _ = push(x, numbers)
        second, _ = push(first, numbers)
        return first, second, length(numbers)

    world = World((start, push, length), NO_GUESSES)
    for program in (start, push, length):
        world.join(program, process="P")
    request = world.submit(fork, 1.0)
    world.finish_all()
    assert [float(each) for each in world.result(request)] == [2.0, 3.0, 1.0]
    world.check_nothing_is_left()


def test_two_that_overwrite_it_never_share_it() -> None:
    @dyorc.workflow
    async def twice(x: Number) -> tuple[Number, Number]:
        numbers = start(x)
        first, _ = push(x, numbers)
        second, _ = push(x, numbers)
        return first, second

    world = World((start, push, length), NO_GUESSES)
    for program in (start, push, length):
        world.join(program, process="P")
    request = world.submit(twice, 1.0)
    world.finish_all()
    assert [float(each) for each in world.result(request)] == [2.0, 2.0]
    world.check_nothing_is_left()
