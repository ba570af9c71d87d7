"""What guessing costs the engine itself: expected times are cheap to find, and old guesses are forgotten."""

from typing import Any

import pytest

import dyorc
from dyorc.engine.model.program_call import CallState
from dyorc.engine.scheduling.speculation_policy import GuessAppraiser
from tests.unit.engine.programs import Vector, add, add_one, check, double, scale
from tests.unit.engine.speculative_world import BAD, GOOD, guarded, is_good, world_with


@dyorc.workflow
async def guarded_by_a_lattice(x: Vector) -> Vector:
    y = check(x)
    for _ in range(14):
        y = add(y, y)
    return double(x) if await dyorc.when(y, is_good) else add_one(x)


def test_the_expected_time_of_a_value_is_found_without_walking_every_path_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    num_looks = 0
    original = GuessAppraiser.expected_ns

    def counting(*args: Any) -> int:
        nonlocal num_looks
        num_looks += 1
        return original(*args)

    monkeypatch.setattr(GuessAppraiser, "expected_ns", counting)
    world = world_with(programs=[check, double, add_one])
    world.submit(guarded_by_a_lattice, GOOD)
    assert num_looks < 1000


def test_foreseen_calls_are_forgotten_once_they_arrive() -> None:
    world = world_with(hold=True)
    for _ in range(3):
        world.join(double)  # several are idle, so no batch is ever held
    for _ in range(50):
        world.submit(guarded, GOOD)
        world.finish_all()
        world.submit(increment_and_double, GOOD)
        world.finish_all()
    assert all(len(pool.foreseen) < 10 for pool in world.engine.scheduler.pools.values())


@dyorc.workflow
async def increment_and_double(x: Vector) -> Vector:
    return double(add_one(x))


@dyorc.workflow
async def scaled_if_good(x: Vector, factor: float) -> Vector:
    if await dyorc.when(check(x), is_good):
        return scale(x, factor)
    return x


def test_withdrawn_guesses_are_forgotten_though_each_has_its_own_batch_key() -> None:
    world = world_with(programs=[check])
    for number in range(600):
        world.submit(scaled_if_good, BAD, factor=float(number))
        world.finish_all()
    guesses = world.engine.scheduler.pools["scale"].guesses
    assert len(guesses) == 0
    assert len(guesses._lanes) < 100  # pyright: ignore[reportPrivateUsage]
    assert all(call.state is CallState.GUESSED for call in guesses)
