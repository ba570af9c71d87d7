"""Room for residents: who waits for it, who gets it, and what is told of that."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float

import dyorc
from tests.unit.engine.driver import World
from tests.unit.engine.resident_world import NO_GUESSES

Number = Float[np.ndarray, ""]
Numbers = Float[np.ndarray, " batch"]
Numerals: TypeAlias = list[float]

_ITEM_BYTES = 8


class Sized:
    """Says how large its residents are."""

    def resident_bytes(self, numbers: Numerals) -> int:
        return _ITEM_BYTES * len(numbers)


@dyorc.program(max_batch_size=8, group="counted", max_resident_bytes=4 * _ITEM_BYTES)
class Begin(Sized):
    def __call__(self, x: Numbers) -> dyorc.Resident[Numerals]:
        return [[float(each)] for each in x]


@dyorc.program(max_batch_size=8, group="counted")
class Extend(Sized):
    def __call__(self, x: Numbers, numbers: dyorc.Resident[Numerals]) -> tuple[Numbers, dyorc.Resident[Numerals]]:
        longer = [[*old, float(each)] for old, each in zip(numbers, x, strict=True)]
        return np.array([sum(each) for each in longer], np.float32), longer


begin, extend = Begin(), Extend()


def world_of_one_process() -> World:
    world = World((begin, extend), NO_GUESSES)
    for program in (begin, extend):
        world.join(program, f"{program.name}@P", process="P")
    return world


@dyorc.workflow
async def gather_chains(x: Number, num_chains: int = 3, num_turns: int = 3) -> Number:
    """Begins chains one after another, and keeps all."""
    chains = []
    for _ in range(num_chains):
        total, numbers = extend(x, begin(x))
        for _ in range(num_turns - 1):
            total, numbers = extend(x, numbers)
        chains.append(numbers)
        await total
    totals = [extend(x, numbers)[0] for numbers in chains]
    return totals[-1]


def test_the_oldest_request_goes_on_though_it_is_another_tenants_turn() -> None:
    world = world_of_one_process()
    oldest = world.submit(gather_chains, 1.0, tenant="light", weight=1e-3)
    others = [world.submit(gather_chains, 2.0, num_chains=1, tenant="heavy") for _ in range(3)]
    for _ in range(200):
        if world.in_flight:
            world.finish()
    assert world.result(oldest) == 5.0
    assert [world.result(each) for each in others] == [10.0] * 3
    world.check_nothing_is_left()
