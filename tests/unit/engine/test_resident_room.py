"""Room for residents: who waits for it, who gets it, and what is told of that."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.engine.request_trace import TraceNote
from dyorc.engine.trace_text import as_text
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


@dyorc.workflow
async def grow(x: Number, num_turns: int = 3) -> Number:
    """Extends one list again and again."""
    numbers, total = begin(x), x
    for _ in range(num_turns):
        total, numbers = extend(total, numbers)
    return total


def events_of(world: World, request: int) -> list[tuple[str, str]]:
    """Returns what the story of a request tells, without batches."""
    steps = world.stories[request].steps()
    return [(step["event"], step.get("program", "")) for step in steps if step["event"] not in ("dispatched", "done", "answered")]


def peak_bytes(world: World) -> int:
    """Runs all batches. Returns the most that the process ever held, with what a batch has just made."""
    most = 0
    while world.in_flight:
        event = world.outcome(world.oldest())
        held = sum(_ITEM_BYTES * len(rows[0]) for block, rows in world.stored.items() if block[0] == "P")
        most = max(most, held)
        world.tell(event)
    return most


def test_what_running_batches_add_counts() -> None:
    world = world_of_one_process()
    world.submit(grow, 1.0, num_turns=1)
    world.finish_all()
    requests = world.submit_all(grow, [1.0, 2.0, 3.0, 4.0], num_turns=1)
    most = peak_bytes(world)
    assert [world.result(each) for each in requests] == [2.0, 4.0, 6.0, 8.0]
    assert 3 * _ITEM_BYTES <= most <= 4 * _ITEM_BYTES  # a list of one number, and beside it the one of two
    world.check_nothing_is_left()


def test_one_request_alone_may_exceed_the_limit() -> None:
    world = world_of_one_process()
    request = world.submit(grow, 1.0, num_turns=5)
    assert peak_bytes(world) == (5 + 6) * _ITEM_BYTES
    assert world.result(request) == 32.0


def test_the_story_tells_evictions_from_losses() -> None:
    world = world_of_one_process()
    requests = world.submit_all(grow, [1.0, 2.0], explain=True)
    world.finish_all()
    assert [world.result(each) for each in requests] == [8.0, 16.0]
    assert events_of(world, requests[0]) == []
    events = events_of(world, requests[1])
    assert ("evicted", "extend") in events
    assert ("remade", "extend") in events
    assert ("waited_for_room", "begin") in events
    assert "lost" not in dict(events)
    text = as_text(world.stories[requests[1]].steps())
    assert "a resident of extend was evicted to make room for others" in text
    assert "a resident of extend that was evicted is made again by running its call again" in text
    assert "begin has waited for room for its resident" in text


def test_the_story_tells_that_rebuild_makes_a_resident_again() -> None:
    text = TraceNote(0, "remade", "extend", "evicted", "rebuild").text()
    assert text == "a resident of extend that was evicted is made again by the program's rebuild"
