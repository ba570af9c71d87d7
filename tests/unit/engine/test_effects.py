"""Effects that a workflow does not await: they happen after the answer, or before it; none is lost without a word."""

from collections.abc import AsyncIterator

import numpy as np
import pytest

import dyorc
from dyorc.core.request import Terms
from dyorc.engine.engine_context import Host
from dyorc.engine.events import BatchUnsent, ReplicaLeft
from dyorc.engine.tallies import EffectsGivenUp
from dyorc.errors import DeadlineError, EffectLostError, ProgramError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, double, is_large, put, send

PROGRAMS = [send, put, double]


@dyorc.workflow
async def sent_aside(x: Vector) -> Vector:
    send(x)
    return double(x)


@dyorc.workflow(wait_for_effects=True)
async def sent_before(x: Vector) -> Vector:
    send(x)
    return double(x)


@dyorc.workflow
async def awaiting(x: Vector) -> Vector:
    return await send(x)


@dyorc.workflow
async def nested(x: Vector) -> Vector:
    awaiting(x)
    return double(x)


@dyorc.workflow
async def handling(x: Vector) -> Vector:
    try:
        await awaiting(x)
    except ProgramError:
        return double(x)
    return x


@dyorc.workflow(wait_for_effects=True)
async def handling_before(x: Vector) -> Vector:
    try:
        await send(x)
    except ProgramError:
        return double(x)
    return x


@dyorc.workflow
async def guarded(x: Vector) -> Vector:
    if await dyorc.when(double(x), is_large):
        return await send(x)
    return x


@dyorc.workflow
async def guarded_aside(x: Vector) -> Vector:
    guarded(x)
    return x


@dyorc.workflow(wait_for_effects=True)
async def streaming(x: Vector) -> AsyncIterator[Vector]:
    send(x)
    yield double(x)


def world_of(*programs: dyorc.Program, host: Host | None = None) -> World:
    world = World(PROGRAMS, host=host)
    for program in programs:
        world.join(program)
    return world


def finish(world: World, program: dyorc.Program) -> None:
    world.finish(world.batches(program)[0])


@pytest.mark.parametrize("workflow", [sent_aside, nested])
def test_the_answer_does_not_wait_and_the_effect_is_known_to_be_pending(workflow: dyorc.Workflow) -> None:
    world = world_of(send, double)
    request_id = world.submit(workflow, [1, 1])
    finish(world, double)
    assert world.result(request_id)[0] == 2
    assert world.engine.pending_effects() == {workflow.name: 1}
    assert world.engine.runs(workflow), "its version may not leave"
    finish(world, send)
    assert world.engine.pending_effects() == {}
    world.check_nothing_is_left()


def test_an_effect_that_rests_on_a_decision_is_pending_too() -> None:
    world = world_of(send, double)
    request_id = world.submit(guarded_aside, [9, 9])
    assert world.result(request_id)[0] == 9
    assert world.engine.pending_effects() == {"guarded_aside": 1}
    world.finish_all()
    assert world.engine.pending_effects() == {}
    assert world.sizes(send) == [1]


def test_an_effect_after_the_answer_happens_though_the_deadline_passes() -> None:
    world = world_of(double)
    request_id = world.submit(sent_aside, [1, 1], deadline_s=1.0)
    finish(world, double)
    world.advance(2.0)
    world.join(send)
    finish(world, send)
    assert world.result(request_id)[0] == 2
    assert not world.failed_effects
    world.check_nothing_is_left()


@pytest.mark.parametrize("workflow", [sent_aside, nested])
def test_effects_after_an_answer_that_was_lost_do_not_happen_since_its_client_may_ask_again(workflow: dyorc.Workflow) -> None:
    world = world_of(double)
    request_id = world.submit(workflow, [1, 1])
    finish(world, double)
    assert world.result(request_id)[0] == 2
    world.cancel(request_id)
    world.join(send)
    assert not world.in_flight
    assert [failure.error.code for failure in world.failed_effects] == ["effect_lost"]
    world.check_nothing_is_left()


def test_the_answer_waits_for_effects_where_the_workflow_says_so() -> None:
    world = world_of(send, double)
    request_id = world.submit(sent_before, [1, 1])
    finish(world, double)
    assert request_id not in world.answers
    assert world.engine.pending_effects() == {}, "it is in flight, not answered"
    finish(world, send)
    assert world.result(request_id)[0] == 2
    world.check_nothing_is_left()


def test_the_answer_waits_for_effects_where_its_terms_say_so() -> None:
    world = world_of(send, double)
    arrived = world.arrival(sent_aside, [1, 1])
    world.tell(type(arrived)(arrived.request_id, arrived.workflow, arrived.inputs, terms=Terms(waits_for_effects=True)))
    finish(world, double)
    assert arrived.request_id not in world.answers
    finish(world, send)
    assert world.result(arrived.request_id)[0] == 2


def test_a_stream_ends_after_its_effects() -> None:
    world = world_of(send, double)
    request_id = world.submit(streaming, [1, 1])
    finish(world, double)
    assert world.part_values(request_id)[0][0] == 2
    assert request_id not in world.answers
    finish(world, send)
    assert request_id in world.answers
    world.check_nothing_is_left()


@pytest.mark.parametrize("is_first", [False, True])
def test_an_effect_s_failure_fails_a_request_that_waits_for_it(is_first: bool) -> None:
    world = world_of(send, double)
    request_id = world.submit(sent_before, [1, 1])
    if is_first:
        world.fail(world.batches(send)[0])
        finish(world, double)
    else:
        finish(world, double)
        world.fail(world.batches(send)[0])
    with pytest.raises(ProgramError, match="out of memory"):
        world.result(request_id)
    assert not world.failed_effects, "the client was told"
    world.check_nothing_is_left()


def test_a_deadline_ends_the_wait_and_what_has_not_begun_does_not_happen() -> None:
    world = world_of(double)
    request_id = world.submit(sent_before, [1, 1], deadline_s=1.0)
    finish(world, double)
    world.advance(2.0)
    with pytest.raises(DeadlineError):
        world.result(request_id)
    world.join(send)
    assert not world.in_flight
    world.check_nothing_is_left()


@pytest.mark.parametrize("workflow", [sent_aside, nested])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_failure_that_nobody_is_told_of_is_reported_and_counted_once(workflow: dyorc.Workflow, is_first: bool) -> None:
    host = Host()
    world = world_of(send, double, host=host)
    request_id = world.submit(workflow, [1, 1])
    if is_first:
        world.fail(world.batches(send)[0])
        finish(world, double)
    else:
        finish(world, double)
        world.fail(world.batches(send)[0])
    assert world.result(request_id)[0] == 2
    (failure,) = world.failed_effects
    assert (failure.workflow, failure.error.code) == (workflow.name, "program")
    assert host.statistics.of_workflow(workflow.name).effect_failures == {"program": 1}
    world.check_nothing_is_left()


@pytest.mark.parametrize("workflow", [handling, handling_before])
def test_a_failure_that_the_workflow_handles_is_none(workflow: dyorc.Workflow) -> None:
    world = world_of(send, double)
    request_id = world.submit(workflow, [1, 1])
    world.fail(world.batches(send)[0])
    world.finish_all()
    assert world.result(request_id)[0] == 2
    assert not world.failed_effects


def test_a_failure_that_is_the_request_s_own_is_not_reported_twice() -> None:
    world = world_of(send)
    request_id = world.submit(awaiting, [1, 1])
    world.fail()
    with pytest.raises(ProgramError):
        world.result(request_id)
    assert not world.failed_effects


def test_a_replica_that_dies_after_the_answer_may_have_had_the_effect() -> None:
    world = world_of(send, double)
    world.submit(sent_aside, [1, 1])
    finish(world, double)
    world.leave("send#0")
    assert [type(failure.error) for failure in world.failed_effects] == [EffectLostError]
    world.check_nothing_is_left()


def test_effects_that_an_engine_takes_with_it_are_counted() -> None:
    host = Host()
    world = world_of(send, double, host=host)
    world.submit(sent_aside, [1, 1])
    finish(world, double)
    assert world.engine.give_up() == {"sent_aside": EffectsGivenUp(num_begun=1, num_not_begun=0)}
    assert host.statistics.of_workflow("sent_aside").effect_failures == {"effect_lost": 1}


def test_effects_that_had_not_begun_are_not_lost() -> None:
    host = Host()
    world = world_of(double, host=host)
    for _ in range(2):
        world.submit(sent_aside, [1, 1])
        finish(world, double)
    world.submit(guarded_aside, [9, 9])
    assert world.engine.pending_effects() == {"sent_aside": 2, "guarded_aside": 1}
    assert world.engine.give_up() == {"sent_aside": EffectsGivenUp(0, 2), "guarded_aside": EffectsGivenUp(0, 1)}
    assert host.statistics.of_workflow("sent_aside").effect_failures == {"not_begun": 2}
    assert host.statistics.of_workflow("guarded_aside").effect_failures == {"not_begun": 1}


@pytest.mark.parametrize("num_moves", [1, 5])
def test_a_batch_that_was_not_sent_runs_when_its_replica_is_back_however_often_that_happens(num_moves: int) -> None:
    world = world_of(send)
    request_id = world.submit(awaiting, [1, 1])
    for _ in range(num_moves):
        (batch,) = world.batches(send)
        name = batch.action.replica_id
        world.forget(name)
        world.tell(BatchUnsent(name, batch.action.batch_id), ReplicaLeft(name, "it moves"))
        world.join(send)
    world.finish_all()
    np.testing.assert_array_equal(world.result(request_id), [1, 1])
    world.check_nothing_is_left()


@dyorc.workflow
async def three_aside(x: Vector) -> Vector:
    dyorc.map(send, [x, x, x])
    return double(x)


@dyorc.workflow(wait_for_effects=True)
async def three_handled(x: Vector) -> Vector:
    try:
        await dyorc.gather(*dyorc.map(send, [x, x, x]))
    except ProgramError:
        return double(x)
    return x


def test_each_effect_of_a_batch_that_failed_is_counted() -> None:
    host = Host()
    world = world_of(send, double, host=host)
    request_id = world.submit(three_aside, [1, 1])
    finish(world, double)
    assert world.result(request_id)[0] == 2
    (batch,) = world.batches(send)
    assert batch.size == 3
    world.fail(batch)
    assert [failure.callee for failure in world.failed_effects] == ["send"] * 3
    assert len({str(failure.error) for failure in world.failed_effects}) == 1
    assert host.statistics.of_workflow("three_aside").effect_failures == {"program": 3}
    world.check_nothing_is_left()


def test_a_workflow_that_awaits_effects_together_learns_of_all_their_failures() -> None:
    host = Host()
    world = world_of(send, double, host=host)
    request_id = world.submit(three_handled, [1, 1])
    world.fail(world.batches(send)[0])
    world.finish_all()
    assert world.result(request_id)[0] == 2
    assert host.statistics.of_workflow("three_handled").effect_failures == {}
    world.check_nothing_is_left()
