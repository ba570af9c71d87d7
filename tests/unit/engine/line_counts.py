"""Counts the lines of the engine that run for a request, for a few items and for many. Prints them as JSON.

    python -m tests.unit.engine.line_counts

In a process of its own: in one in which a thread was sent an exception, CPython 3.11 may hang in the first call that is traced.
"""

import json
import sys
from collections.abc import AsyncIterator, Iterable
from types import FrameType
from typing import Any

import numpy as np
from jaxtyping import Float, Int

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.actions import Action
from dyorc.engine.events import Event
from tests.unit.engine import driver
from tests.unit.engine.driver import World

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


def num_lines(asked: dyorc.Workflow, number: int, is_storing: bool) -> int:
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

    world.engine.handle = handle_counted
    request = world.submit(asked, number)
    while (batch := world.next_batch()) is not None:
        world.finish(batch)
    assert not isinstance(world.answers[request], dyorc.DyOrcError)
    return counted


def main() -> None:
    """Prints the lines for each item, by workflow and kind of tensors: of a request with few items, and of one with many."""
    driver.check_all = lambda engine: None  # it visits everything, after every event
    lines: dict[str, tuple[float, ...]] = {}
    for asked in WORKFLOWS:
        for is_storing in (False, True):
            name = f"{asked.name}-{'stored' if is_storing else 'inline'}"
            lines[name] = tuple([num_lines(asked, number, is_storing) / number for number in (FEW, MANY)])
    print(json.dumps(lines))


if __name__ == "__main__":
    main()
