"""A world whose replicas say where their results lie, so that blocks are released, and which never guesses."""

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.driver import World

NO_GUESSES = EngineConfig(speculation=SpeculationConfig(enabled=False))


def world_with(*programs: dyorc.Program, is_taking: bool = True, is_fetching: bool = True, is_storing: bool = False) -> World:
    world = World(programs, NO_GUESSES, is_placing=True, is_taking=is_taking, is_fetching=is_fetching, is_storing=is_storing)
    for program in programs:
        world.join(program)
    return world
