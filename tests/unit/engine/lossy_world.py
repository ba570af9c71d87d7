"""A world whose replicas keep their results and lose them when they die."""

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add, add_one, check, double, put, send

NO_GUESSES = EngineConfig(speculation=SpeculationConfig(enabled=False))
PROGRAMS = (add_one, double, add, check, send, put)


def world_with(
    *absent: dyorc.Program, config: EngineConfig = NO_GUESSES, is_fetching: bool = True, is_taking: bool = True
) -> World:
    """Makes a world with one replica of every program that is not `absent`. Each is named after its program."""
    world = World(PROGRAMS, config, is_placing=True, is_fetching=is_fetching, is_taking=is_taking)
    for program in PROGRAMS:
        if program not in absent:
            world.join(program, program.name)
    return world


def restart(world: World, program: dyorc.Program) -> None:
    """Lets the replica of a program die with what it holds, and another take its place."""
    world.leave(program.name)
    world.join(program, program.name)


@dyorc.workflow
async def one_after_the_other(x: Vector) -> Vector:
    return double(add_one(x))
