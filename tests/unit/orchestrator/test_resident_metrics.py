"""What metrics say of residents."""

from typing import Any

import numpy as np

import dyorc
from dyorc.orchestrator.measuring import read_levels
from dyorc.telemetry.levels import Levels, ProgramLevels
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings
from tests.unit.engine.driver import World
from tests.unit.engine.programs import add_one
from tests.unit.engine.resident_world import NO_GUESSES, Number, Numbers


@dyorc.program(max_batch_size=4, group="rows")
def fill(x: Numbers) -> dyorc.Resident[Any]:
    """Makes rows of 400 bytes."""
    return [np.full(100, each, np.float32) for each in x]


@dyorc.program(max_batch_size=4, group="rows")
def add_up(rows: dyorc.Resident[Any]) -> Numbers:
    """Returns the sum of each row."""
    return np.array([row.sum() for row in rows], np.float32)


@dyorc.workflow
async def added_up(x: Number) -> Number:
    return add_up(fill(x))


def read(world: World, program: str) -> Readings:
    readings = Readings()
    read_levels(Levels(programs={program: ProgramLevels()}), world.engine, readings)
    return readings


def test_residents_are_counted_by_the_program_that_made_them() -> None:
    world = World([fill, add_up], NO_GUESSES)
    for program in (fill, add_up):
        world.join(program, process="one")
    world.submit_all(added_up, [1.0, 2.0])
    world.finish()
    readings = read(world, "fill")
    assert readings.of(catalogue.RESIDENTS) == {("fill",): 2}
    assert readings.of(catalogue.RESIDENT_BYTES) == {("fill",): 800}
    assert readings.of(catalogue.RESIDENTS_EVICTED) == {("fill",): 0}
    assert readings.of(catalogue.RESIDENTS_REBUILT) == {("fill",): 0}
    assert read(world, "add_up").of(catalogue.RESIDENTS) == {("add_up",): 0}
    world.finish_all()
    assert read(world, "fill").of(catalogue.RESIDENTS) == {("fill",): 0}


def test_programs_without_residents_have_no_such_metrics() -> None:
    assert read(World([add_one]), "add_one").of(catalogue.RESIDENTS) == {}
