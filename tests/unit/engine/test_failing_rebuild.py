"""A program's rebuild that fails costs no request: the calls of the chain run again, one by one."""

from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from tests.unit.engine.driver import World
from tests.unit.engine.resident_world import NO_GUESSES

Number = Float[np.ndarray, ""]
Numbers = Float[np.ndarray, " batch"]
Numerals = list[float]


def rebuild_that_raises(self: Any, calls: list[dyorc.ChainCall]) -> Numerals:
    raise ArithmeticError(f"cannot rebuild {len(calls)} calls")


def rebuild_to_none(self: Any, calls: list[dyorc.ChainCall]) -> None:
    return None


class FailingWorld:
    """A process in which lists of numbers grow, with a rebuild that fails."""

    def __init__(self, rebuild: Any) -> None:
        @dyorc.program(max_batch_size=4, group="failing")
        def begin(x: Numbers) -> dyorc.Resident[Numerals]:
            return [[float(each)] for each in x]

        class Extend:
            def __call__(self, x: Numbers, numbers: dyorc.Resident[Numerals]) -> tuple[Numbers, dyorc.Resident[Numerals]]:
                longer = [[*old, float(each)] for old, each in zip(numbers, x, strict=True)]
                return np.array([sum(each) for each in longer], np.float32), longer

        Extend.rebuild = rebuild  # pyright: ignore[reportAttributeAccessIssue]
        extend = dyorc.program(max_batch_size=4, group="failing")(Extend)()

        @dyorc.workflow
        async def grow(x: Number, num_turns: int = 6) -> Number:
            numbers, total = begin(x), x
            for _ in range(num_turns):
                total, numbers = extend(total, numbers)
            return total

        self.grow, self.programs = grow, (begin, extend)
        self.world = World(self.programs, NO_GUESSES)
        self._num_processes = 0
        self._join()

    def _join(self) -> None:
        self._num_processes += 1
        for program in self.programs:
            self.world.join(program, f"{program.name}@{self._num_processes}", process=f"P{self._num_processes}")

    def lose(self) -> None:
        """Lets the process die, and another take its place."""
        for program in self.programs:
            self.world.leave(f"{program.name}@{self._num_processes}")
        self._join()

    def run(self) -> int:
        """Runs all batches. Returns how many of all were rebuilds."""
        self.world.finish_all()
        return sum(bool(batch.action.chain) for batch in self.world.history)


@pytest.mark.parametrize(
    ("rebuild", "text"),
    [(rebuild_that_raises, "cannot rebuild 5 calls"), (rebuild_to_none, "rebuilt None as 'output_1' of row 0")],
)
def test_the_calls_of_the_chain_run_again(rebuild: Any, text: str) -> None:
    failing = FailingWorld(rebuild)
    world = failing.world
    request = world.submit(failing.grow, 1.0)
    for _ in range(5):
        world.finish()
    failing.lose()
    assert failing.run() == 1
    assert world.result(request) == 64.0
    (failed,) = world.failed_rebuilds
    assert (failed.program, failed.workflow) == ("extend", "grow")
    assert text in failed.error
    assert sum(world.engine.scheduler.pools["extend"].record.failures.values()) == 1
    world.check_nothing_is_left()


def test_the_engine_tells_of_it_once() -> None:
    failing = FailingWorld(rebuild_that_raises)
    world = failing.world
    requests = world.submit_all(failing.grow, [1.0, 2.0])
    for _ in range(5):
        world.finish()
    failing.lose()
    failing.run()
    assert [world.result(each) for each in requests] == [64.0, 128.0]
    assert len(world.failed_rebuilds) == 1
    world.check_nothing_is_left()
