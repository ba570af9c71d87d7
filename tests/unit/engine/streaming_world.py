"""A world for workflows that yield their answers part by part, and a log of how far they got."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, check, double, extremes, is_large, send

PROGRAMS = [add_one, double, check, extremes, send]
NEVER = SpeculationConfig(enabled=False)
ALWAYS = SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)

log: list[str] = []
"""What the workflows of the current test have written; `world_with` empties it."""


def world_with(speculation: SpeculationConfig = NEVER, max_untaken_parts: int = 16, **options: Any) -> World:
    """Makes a world with replicas of all programs, and empties the log. Parts wait until the test takes them."""
    log.clear()
    limits = {name: options.pop(name) for name in list(options) if name.startswith("max_")}
    config = EngineConfig(speculation=speculation, max_untaken_parts=max_untaken_parts, **limits)
    world = World(PROGRAMS, config, **{"is_taking": False, **options})
    for program in PROGRAMS:
        world.join(program)
        pool = world.engine.scheduler.pools[program.name]
        pool.latency.observe(1, 0.1)
        pool.sojourn_ns.add(0.1e9)
        pool.demand.add(0, 0)
    return world


def take_all(world: World, request_id: int) -> list[list[float]]:
    """Takes every part that is there. Returns all parts taken so far."""
    while world.next_part(request_id) is not None:
        world.take_part(request_id)
    return [part.tolist() for part in world.part_values(request_id)]


def finish_all(world: World, request_id: int) -> list[list[float]]:
    """Finishes batches and takes parts until none are left. Returns all parts."""
    while world.in_flight or world.next_part(request_id) is not None:
        take_all(world, request_id)
        if world.in_flight:
            world.finish()
    return take_all(world, request_id)


@dyorc.workflow
async def five(x: Vector) -> AsyncGenerator[Vector, None]:
    for number in range(5):
        log.append(f"part {number}")
        x = add_one(x)
        yield x


@dyorc.workflow
async def guarded(x: Vector) -> AsyncIterator[Vector]:
    yield x
    if await dyorc.when(check(x), is_large, likely=True):
        yield add_one(x)
    else:
        yield double(x)
