"""A run that nobody needs ends at once, whatever its `finally` blocks await."""

import sys

import pytest

import dyorc
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, double

_steps: list[str] = []


@dyorc.workflow
async def stubborn(x: Vector) -> Vector:
    try:
        await add_one(x)
    finally:
        try:
            _steps.append("first")
            await x
        finally:
            try:
                _steps.append("second")
                await x
            finally:
                _steps.append("third")
    return double(x)


def test_a_cancelled_run_ends_though_its_finally_blocks_await(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: complaints.append(str(raised.exc_value)))
    _steps.clear()
    world = World([add_one, double])
    for program in world.programs:
        world.join(program)
    (path,) = world.engine.tasks.requests[world.submit(stubborn, [1, 2])].root.paths
    world.cancel(next(iter(world.workflows)))
    assert _steps == ["first", "second", "third"]
    assert path.is_closed
    del path
    assert not complaints
    world.finish_all()
    world.check_nothing_is_left()
