"""A request's work in the engine grows no faster than what it asks for, however much of it is open at once.

Counted are the lines of the engine that run: a walk over everything that is open, in each turn, makes each item cost more the
more items there are.
"""

import sys
from collections.abc import AsyncIterator, Iterable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float, Int

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.actions import Action
from dyorc.engine.events import Event
from tests.unit.engine import driver
from tests.unit.engine.driver import World

pytestmark = pytest.mark.pure  # compiled modules run no lines that could be counted

FEW, MANY = 50, 200
Number = Int[np.ndarray, ""]
Numbers = Int[np.ndarray, " batch"]


@dyorc.program(batched=False, max_ongoing=8)
async def count(start: Number) -> AsyncIterator[Number]:
    for number in range(3):
        yield start + number


@dyorc.program(batched=False, max_ongoing=8)
async def double(numbers: AsyncIterator[Number]) -> AsyncIterator[Number]:
    async for number in numbers:
        yield 2 * number


@dyorc.program(max_batch_size=8)
def add_one(x: Numbers) -> Numbers:
    return x + 1


@dyorc.program(max_batch_size=8, group="growing")
def keep(x: Numbers) -> dyorc.Resident[list[float]]:
    return [[float(each)] for each in x]


@dyorc.program(max_batch_size=8, group="growing")
def look(kept: dyorc.Resident[list[float]]) -> Float[np.ndarray, " batch"]:
    return np.array([sum(each) for each in kept], np.float32)


PROGRAMS = [count, double, add_one, keep, look]


def workflow(function: Any) -> dyorc.Workflow:
    return dyorc.workflow(programs=PROGRAMS)(function)


@workflow
async def reads_one_by_one(number: int) -> Number:
    total = 0
    for stream in dyorc.map(count, [np.array(start) for start in range(number)]):
        total += sum(int(part) for part in await dyorc.collect(stream))
    return np.array(total)


@workflow
async def drops_most(number: int) -> Number:
    streams = dyorc.map(count, [np.array(start) for start in range(number)])
    last = 0
    while streams:
        last = sum(int(part) for part in await dyorc.collect(streams.pop()))
        del streams[-7:]
    return np.array(last)


@workflow
async def doubled_one_by_one(number: int) -> Number:
    total = 0
    for stream in [double(count(np.array(start))) for start in range(number)]:
        total += sum(int(part) for part in await dyorc.collect(stream))
    return np.array(total)


@workflow
async def total_of(start: Number) -> Number:
    return np.array(sum(int(part) for part in await dyorc.collect(count(start))))


@workflow
async def reads_all_at_once(number: int) -> Number:
    return np.array(sum([int(x) for x in await dyorc.gather(*dyorc.map(total_of, [np.array(at) for at in range(number)]))]))


@workflow
async def ups(start: Number) -> AsyncIterator[Number]:
    for _ in range(3):
        yield add_one(start)


@workflow
async def reads_workflows(number: int) -> Number:
    total = 0
    for stream in [ups(np.array(start)) for start in range(number)]:
        total += sum(int(part) for part in await dyorc.collect(stream))
    return np.array(total)


@workflow
async def twice(x: Number) -> Number:
    return np.array(int(await add_one(x)) + int(await add_one(x)))


@workflow
async def calls_workflows(number: int) -> Number:
    return np.array(sum([int(x) for x in await dyorc.gather(*[twice(np.array(at)) for at in range(number)])]))


@workflow
async def follows_decisions(number: int) -> Number:
    x = add_one(np.array(0))
    for _ in range(number):
        if await dyorc.when(x, lambda value: value >= 0):
            x = add_one(x)
    return x


@workflow
async def keeps_residents(number: int) -> Number:
    kept = [keep(np.array(at)) for at in range(number)]
    return np.array(int(sum([float(await look(each)) for each in kept])))


WORKFLOWS = [
    reads_one_by_one, drops_most, doubled_one_by_one, reads_all_at_once, reads_workflows, calls_workflows, follows_decisions,
    keeps_residents,
]  # fmt: skip


@pytest.mark.parametrize("is_storing", [False, True], ids=["inline", "stored"])
@pytest.mark.parametrize("asked", WORKFLOWS, ids=[each.name for each in WORKFLOWS])
def test_no_item_costs_more_among_many(asked: dyorc.Workflow, is_storing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "check_all", lambda engine: None)  # it visits everything, after every event
    few, many = (num_lines(asked, number, is_storing, monkeypatch) / number for number in (FEW, MANY))
    assert many < 1.15 * few


def num_lines(asked: dyorc.Workflow, number: int, is_storing: bool, monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns how many lines of the package run while a request is handled."""
    # With one part ahead of what was read, calls wait to be read and keep their places.
    config = EngineConfig(speculation=SpeculationConfig(enabled=False), max_untaken_parts=1)
    world = World(PROGRAMS, config, is_storing)
    for program in PROGRAMS:
        world.join(program, process="one" if program.group else "")
    counted = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal counted
        if "/dyorc/" not in frame.f_code.co_filename:
            return None
        counted += 1
        return trace

    handle = world.engine.handle

    def handle_counted(events: Iterable[Event], now_ns: int) -> list[Action]:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return handle(events, now_ns)
        finally:
            sys.settrace(before)

    monkeypatch.setattr(world.engine, "handle", handle_counted)
    request = world.submit(asked, number)
    while (batch := world.next_batch()) is not None:
        world.finish(batch)
    assert not isinstance(world.answers[request], dyorc.DyOrcError)
    return counted
