"""A world that knows how long each program takes, with a predictor that says what the test wants."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import dyorc
from dyorc.authoring.decisions import Decision
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.engine_context import Host
from dyorc.engine.guessing.prediction import Distribution, Predictor
from dyorc.engine.model.futures import Outcome
from dyorc.engine.model.journal import Context
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add, add_one, check, double, put, scale, send

PROGRAMS = (add_one, double, check, scale, add, send, put)


class Says:
    """Predicts the same outcome for every decision."""

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution

    def predict(self, decision: Decision, context: Context) -> Distribution:
        return self.distribution

    def observe(self, decision: Decision, context: Context, outcome: Outcome) -> None:
        pass


YES = Says({True: 0.9, False: 0.05})
BOTH = Says({True: 0.5, False: 0.5})


def world_with(
    predictor: Predictor | None = YES,
    programs: Sequence[dyorc.Program] = PROGRAMS,
    *,
    is_storing: bool = False,
    is_fetching: bool = True,
    hold: bool = False,
    limits: dict[str, Any] | None = None,
    num_cores: int = 0,
    host: Host | None = None,
    **speculation: float,
) -> World:
    """Makes a world with one replica of each program, all known to take T(n) = 0.1 s + 0.01 s * n. They share `num_cores`,
    unless that is 0.
    """
    config = EngineConfig(hold=hold, speculation=SpeculationConfig.model_validate(speculation), **(limits or {}))
    world = World(PROGRAMS, config, is_storing, is_fetching, predictor, host=host)
    for program in programs:
        world.join(program, num_cores=num_cores)
        warm(world, program)
    return world


def warm(world: World, program: dyorc.Program) -> None:
    """Tells the engine how long a program takes, and that no calls of it are expected."""
    pool = world.engine.scheduler.pools[program.name]
    for size in (1, 2):
        pool.latency.observe(size, 0.1 + 0.01 * size)
    pool.sojourn_ns.add(0.11e9)
    pool.demand.add(0, 0)  # its rate is known: 0


def is_good(x: np.ndarray) -> bool:
    return bool(x[0] > 0)


@dyorc.workflow
async def guarded(x: Vector) -> Vector:
    """Calls `double` if the result of `check` is good, else `add_one`."""
    if await dyorc.when(check(x), is_good):
        return double(x)
    return add_one(x)


GOOD, BAD = [1, 2], [0, 2]


def counts(world: World) -> tuple[int, int, int]:
    """Returns how many guesses ran, were right, and were wrong."""
    speculator = world.engine.speculator
    return speculator.num_speculations, speculator.num_commits, speculator.num_squashes


@dyorc.workflow
async def guarded_twice(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good) and await dyorc.when(scale(x, 2.0), is_good):
        return double(x)
    return add_one(x)


SURE_YES = Says({True: 1.0})
