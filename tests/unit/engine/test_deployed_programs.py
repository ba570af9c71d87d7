"""Programs that come and go while an engine runs."""

import gc

import pytest

import dyorc
from dyorc.authoring.workflow import of_program
from dyorc.engine.engine_context import Host
from dyorc.engine.engine_statistics import MAX_RETIRED
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


def test_nothing_is_known_of_a_workflow_that_has_left_nor_of_those_that_it_calls() -> None:
    @dyorc.workflow
    async def inner(x: Vector) -> Vector:
        return double(x)

    @dyorc.workflow
    async def outer(x: Vector) -> Vector:
        return inner(inner(x))

    world = World([double])
    world.join(double)
    request = world.submit(outer, [1, 2])
    world.finish_all()
    assert list(world.result(request)) == [4, 8]
    assert _num_dicts_with(outer)
    assert _num_dicts_with(inner)
    world.tell(WorkflowRemoved(outer))
    assert not _num_dicts_with(outer)
    assert not _num_dicts_with(inner)


def _num_dicts_with(workflow: dyorc.Workflow) -> int:
    """Returns how many dicts of this process have it as a key."""
    return sum(any(key is workflow for key in thing) for thing in gc.get_objects() if isinstance(thing, dict))


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


def test_counts_of_what_has_left_go_in_the_end_and_come_back_before_that() -> None:
    host = Host()
    world = World([add_one], host=host)
    world.join(add_one)
    statistics = host.statistics
    for number in (1, 2):
        world.submit(increment, [0, 0])
        world.finish_all()
        world.tell(WorkflowRemoved(increment))
        assert increment.name not in statistics.workflows
        assert world.engine.statistics(increment.name).inference_count == number

    for number in range(MAX_RETIRED + 1):
        program = add_one.with_options(name=f"add_one-{number}")
        version = of_program(program)
        world.add(program)
        world.join(program)
        world.submit(version, [0, 0])
        world.finish_all()
        world.want(program, 0)
        world.tell(ProgramRemoved(program), WorkflowRemoved(version))
    for records in (statistics.retired_programs, statistics.retired_workflows):
        assert list(records) == [f"add_one-{number}" for number in range(1, MAX_RETIRED + 1)]
    assert list(statistics.programs) == [add_one.name]
