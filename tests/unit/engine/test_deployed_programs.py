"""Programs that come and go while an engine runs."""

import pytest

import dyorc
from dyorc.engine.engine_context import Host
from dyorc.engine.events import ProgramRemoved, ReplicasWanted, WorkflowRemoved
from dyorc.errors import NotDeployedError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, double, increment

again = add_one.with_options()
"""The same program as another object, as a second version of its module has it."""


@dyorc.workflow
async def doubled(x: Vector) -> Vector:
    return double(x)


@dyorc.workflow
async def incremented_again(x: Vector) -> Vector:
    return again(x)


def test_a_program_that_is_added_is_called() -> None:
    world = World([add_one])
    world.join(add_one)
    request = world.submit(doubled, [1, 2])
    with pytest.raises(NotDeployedError):
        world.result(request)
    world.add(double)
    world.join(double)
    request = world.submit(doubled, [1, 2])
    world.finish_all()
    assert list(world.result(request)) == [2, 4]
    world.check_nothing_is_left()


def test_a_program_stands_for_its_twin() -> None:
    world = World([add_one])
    world.join(add_one)
    world.add(again)
    requests = [world.submit(increment, [0, 0]), *world.submit_all(incremented_again, [[1, 1], [2, 2]])]
    world.finish_all()
    assert [list(world.result(request)) for request in requests] == [[1, 1], [2, 2], [3, 3]]
    assert {batch.action.program for batch in world.history} == {add_one}

    world.tell(ProgramRemoved(again))
    refused = world.submit(incremented_again, [1, 1])
    with pytest.raises(NotDeployedError):
        world.result(refused)
    served = world.submit(increment, [1, 1])
    world.finish_all()
    assert list(world.result(served)) == [2, 2]
    world.check_nothing_is_left()


def test_a_program_that_was_let_go_is_removed_without_a_trace() -> None:
    host = Host()
    world = World([add_one, double], host=host)
    world.join(add_one)
    replica = world.join(double)
    request = world.submit(doubled, [1, 2])
    world.want(double, 0)
    assert not world.parked, "it still runs a batch"
    world.finish_all()
    assert list(world.result(request)) == [2, 4]
    assert list(world.parked) == [replica]
    world.tell(ProgramRemoved(double), WorkflowRemoved(doubled))
    assert host.wanted.keys() == set()
    assert not world.engine.speculator.report()["workflows"]
    world.check_nothing_is_left()


def test_calls_of_a_program_that_is_removed_all_the_same_fail() -> None:
    world = World([double])
    waiting = world.submit(doubled, [1, 2])
    world.tell(ProgramRemoved(double))
    with pytest.raises(NotDeployedError, match="no longer deployed"):
        world.result(waiting)
    world.add(double)
    world.join(double)
    running = world.submit(doubled, [1, 2])
    world.tell(ProgramRemoved(double))
    with pytest.raises(NotDeployedError, match="no longer deployed"):
        world.result(running)


def test_what_is_wanted_may_be_said_before() -> None:
    world = World([add_one], host=Host(wanted={"double": ReplicasWanted("double", 1)}))
    world.add(double)
    world.join(double)
    world.join(double)
    assert len(world.parked) == 1
