"""Programs that wait and yield, and a world that has them."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, check, double, send

log: list[str] = []
"""What the programs of the current test have written; `yielding_world` empties it."""


@dyorc.program(batched=False)
def count_up(x: Vector, length: int = 3) -> Iterator[Vector]:
    """Yields x, x + 1, ...; raises at a negative number, and before the part that would be 100."""
    try:
        for number in range(length):
            if (x + number == 100).any():
                raise ValueError("it is a hundred")
            log.append(f"part {number}")
            yield x + number
    finally:
        log.append("closed")


@dyorc.program(batched=False, max_ongoing=3)
def count_along(x: Vector, length: int = 3) -> Iterator[Vector]:
    """Like `count_up`; three at once on a replica."""
    for number in range(length):
        yield x + number


@dyorc.program(batched=False, pure=False)
def announce(x: Vector, length: int = 3) -> Iterator[Vector]:
    """Stands for a program with an effect that yields."""
    for number in range(length):
        log.append(f"announced {number}")
        yield x + number


@dyorc.program(batched=False, max_ongoing=2)
async def wait_and_add(x: Vector) -> Vector:
    """Stands for a program that waits for something else."""
    return x + 1


@dyorc.program(batched=False, max_ongoing=4)
async def sum_up(parts: AsyncIterator[Vector], start: Vector) -> Vector:
    """Adds the parts of a stream to a vector."""
    async for part in parts:
        start = start + part
    return start


@dyorc.program(batched=False, max_ongoing=4)
async def running_sum(parts: AsyncIterator[Vector]) -> AsyncIterator[Vector]:
    """Yields the sum of the parts so far."""
    total = np.zeros(2, np.float32)
    async for part in parts:
        total = total + part
        log.append(f"sum {total[0]:g}")
        yield total


@dyorc.program(batched=False, max_ongoing=4)
async def first_of(parts: AsyncIterator[Vector]) -> Vector:
    """Returns the first part, and reads no other."""
    return await anext(aiter(parts))


PROGRAMS = [sum_up, running_sum, first_of, add_one, double, check, send, count_up, count_along, announce, wait_and_add]
NEVER = SpeculationConfig(enabled=False)
ALWAYS = SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)


def yielding_world(speculation: SpeculationConfig = NEVER, max_untaken_parts: int = 16, **options: Any) -> World:
    """Makes a world with replicas of all programs, and empties the log."""
    log.clear()
    limits = {name: options.pop(name) for name in list(options) if name.startswith("max_")}
    config = EngineConfig(speculation=speculation, max_untaken_parts=max_untaken_parts, hold=False, **limits)
    world = World(PROGRAMS, config, **options)
    for program in PROGRAMS:
        world.join(program)
        pool = world.engine.scheduler.pools[program.name]
        pool.latency.observe(1, 0.1)
        pool.sojourn_ns.add(0.1e9)
        pool.demand.add(0, 0)
    return world


@dyorc.workflow
async def total(x: Vector) -> Vector:
    """Returns the last part, doubled."""
    last = x
    async for part in count_up(x):
        last = double(part)
    return last


@dyorc.workflow
async def passed_on(x: Vector) -> AsyncIterator[Vector]:
    """Yields each part plus one."""
    async for part in count_up(x):
        yield add_one(part)
