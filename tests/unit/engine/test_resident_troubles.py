"""Chains whose process is lost because another call hung there, or has no replica of a program that they need."""

import pytest

import dyorc
from dyorc.engine.events import ProgramRemoved, ReplicaLeaving
from dyorc.errors import SuspectInputError
from tests.unit.engine.driver import World
from tests.unit.engine.resident_world import (
    NO_GUESSES,
    PROGRAMS,
    Number,
    Numbers,
    add_process,
    begin,
    chain,
    end_process,
    extend,
    join,
    world_with,
)


@dyorc.program(group="sums", execution_timeout_s=5.0)
def hang(x: Numbers) -> Numbers:
    """Hangs, in these tests."""
    return x


@dyorc.workflow
async def hanging(x: Number) -> Number:
    return hang(x)


class HangingWorld:
    """A process in which chains run, beside a program that hangs. After that, another process takes its place."""

    def __init__(self) -> None:
        self.world = World((*PROGRAMS, hang), NO_GUESSES)
        self.num_processes = 0
        self._join()

    def _join(self) -> None:
        self.num_processes += 1
        name = f"P{self.num_processes}"
        add_process(self.world, name)
        self.world.join(hang, f"hang@{name}", process=name)

    def step(self) -> None:
        """Runs a batch; one of the program that hangs takes its process with it."""
        batch = self.world.oldest()
        if batch.program == hang.name:
            self.world.advance(6.0)
            assert self.world.replaced == [f"hang@P{number + 1}" for number in range(self.num_processes)]
            end_process(self.world, f"P{self.num_processes}")
            self._join()
        else:
            self.world.finish()

    def run(self) -> None:
        for _ in range(1000):
            if self.world.in_flight:
                self.step()
            elif self.world.engine.tasks.requests:
                self.world.advance(1.0)
            else:
                return
        raise AssertionError("it does not end")


def test_a_call_that_hangs_costs_others_their_state_once() -> None:
    hung = HangingWorld()
    world = hung.world
    request = world.submit(chain, 1.0, num_turns=10)
    for _ in range(4):
        world.finish()
    culprit = world.submit(hanging, 1.0)
    while hung.num_processes == 1:
        hung.step()
    num_before = len(world.batches(extend)) + sum(batch.program == extend.name for batch in world.history)
    hung.run()
    assert world.result(request) == 1024.0
    with pytest.raises(SuspectInputError):
        world.result(culprit)
    assert hung.num_processes == 3
    assert len([batch for batch in world.history if batch.program == begin.name]) == 2
    assert num_before < 10
    world.check_nothing_is_left()


def test_many_calls_that_hang_do_not_make_another_fail() -> None:
    hung = HangingWorld()
    world = hung.world
    request = world.submit(chain, 1.0, num_turns=30)
    for number in range(4):
        for _ in range(3):
            hung.step()
        culprit = world.submit(hanging, float(number))
        while hung.num_processes == 1 + number:
            hung.step()
        assert culprit not in world.answers
    hung.run()
    assert world.result(request) == 2.0**30
    assert hung.num_processes > 4
    world.check_nothing_is_left()


def test_a_chain_is_made_again_where_its_next_program_is_loaded() -> None:
    world = world_with("P", "Q")
    request = world.submit(chain, 1.0, num_turns=4)
    (batch,) = world.in_flight.values()
    here = world.process_of[batch.action.replica_id]
    world.tell(ReplicaLeaving(f"extend@{here}"))  # so that its program is parked, and the chain begins there all the same
    world.finish_all()
    assert world.result(request) == 16.0
    used = {world.process_of[batch.action.replica_id] for batch in world.history if batch.program == extend.name}
    assert used == {"P", "Q"} - {here}
    world.check_nothing_is_left()


def test_new_chains_begin_where_all_programs_are_loaded() -> None:
    world = world_with("P", "Q")
    world.want(extend, 1)
    requests = world.submit_all(chain, [1.0, 2.0])
    world.finish_all()
    assert [world.result(request) for request in requests] == [8.0, 16.0]
    assert len([batch for batch in world.history if batch.program == begin.name]) == 1
    assert not world.batches(join)
    world.check_nothing_is_left()


def test_a_process_is_whole_without_a_program_that_was_removed() -> None:
    """Otherwise it would get no new chains as long as another process was there."""
    world = world_with("P", "Q")
    world.want(join, 0)
    world.finish_all()
    world.tell(ProgramRemoved(join))
    requests = world.submit_all(chain, [1.0, 2.0, 3.0, 4.0, 5.0])  # more than one batch takes
    world.finish_all()
    assert [world.result(request) for request in requests] == [8.0, 16.0, 24.0, 32.0, 40.0]
    assert all(process.is_whole for process in world.engine.scheduler.processes.by_name.values())
