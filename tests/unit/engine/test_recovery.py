"""Tensors that were lost with their replica are computed again when somebody needs them."""

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.events import ReplicaLeft, TensorsLost, ValueFetched
from dyorc.engine.invariants import check_all
from dyorc.engine.story import as_text
from dyorc.errors import DeadlineError, EffectLostError, ProgramError, ReplicaLostError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add, add_one, cascade, check, double, increment, increment_twice, put, send

NO_GUESSES = EngineConfig(speculation=SpeculationConfig(enabled=False))
PROGRAMS = (add_one, double, add, check, send, put)


def world_with(
    *absent: dyorc.Program, config: EngineConfig = NO_GUESSES, is_fetching: bool = True, is_taking: bool = True
) -> World:
    """A world with one replica of each program but those `absent`, named after it."""
    world = World(PROGRAMS, config, is_placing=True, is_fetching=is_fetching, is_taking=is_taking)
    for program in PROGRAMS:
        if program not in absent:
            world.join(program, program.name)
    return world


def restart(world: World, program: dyorc.Program) -> None:
    """Its replica dies with what it holds; another takes its place."""
    world.leave(program.name)
    world.join(program, program.name)


@dyorc.workflow
async def one_after_the_other(x: Vector) -> Vector:
    return double(add_one(x))


@dyorc.workflow
async def chain(x: Vector) -> Vector:
    return check(double(add_one(x)))


# Who needs the bytes


def test_a_queued_call_whose_input_was_lost_waits_until_it_was_computed_again() -> None:
    world = world_with(double)
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    assert len(world.engine.scheduler.pools["double"].queue) == 1
    restart(world, add_one)
    assert len(world.engine.scheduler.pools["double"].queue) == 0
    assert world.sizes(add_one) == [1, 1]
    world.join(double)
    assert not world.batches(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_nothing_is_computed_again_before_it_is_needed() -> None:
    @dyorc.workflow
    async def joined(x: Vector) -> Vector:
        return add(add_one(x), double(x))

    world = world_with()
    world.submit(joined, [1, 1])
    world.finish(world.batches(add_one)[0])
    restart(world, add_one)
    assert not world.batches(add_one)
    world.finish(world.batches(double)[0])
    assert len(world.batches(add_one)) == 1
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_what_the_workflow_has_looked_at_stays_valid() -> None:
    @dyorc.workflow
    async def looks(x: Vector) -> Vector:
        y = add_one(x)
        before = await y
        await double(x)
        return before + await y

    world = world_with()
    world.submit(looks, [1, 1])
    world.finish(world.batches(add_one)[0])
    restart(world, add_one)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_a_value_that_was_lost_before_it_was_asked_for_is_computed_again_first() -> None:
    @dyorc.workflow
    async def looks_late(x: Vector) -> Vector:
        y = add_one(x)
        await double(x)
        return await y

    world = world_with(is_fetching=False)
    world.submit(looks_late, [1, 1])
    world.finish(world.batches(add_one)[0])
    world.finish(world.batches(double)[0])
    restart(world, add_one)
    world.fetch()
    assert not world.fetches
    world.finish_all()
    world.fetch()
    assert np.array_equal(world.result(1), [2, 2])
    world.check_nothing_is_left()


def test_a_value_that_was_lost_while_it_was_fetched_is_computed_again_and_fetched_again() -> None:
    world = world_with(is_fetching=False)
    world.submit(cascade, [1, 1])
    world.finish()
    restart(world, add_one)
    world.fetch()
    assert world.sizes(add_one) == [1, 1]
    world.finish_all()
    world.fetch()
    world.finish_all()
    assert np.array_equal(world.result(1), [2, 2])
    world.check_nothing_is_left()


def test_an_answer_that_was_lost_before_it_was_taken_is_computed_and_given_again() -> None:
    world = world_with(is_taking=False)
    world.submit(one_after_the_other, [1, 1])
    world.finish_all()
    restart(world, double)
    world.take()
    assert world.sizes(add_one) == [1, 1], "the input of what was lost had been released"
    assert not world.untaken
    world.cancel(1)
    world.finish_all()
    assert world.sizes(double) == [1, 1]
    world.take()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_an_answer_of_a_task_is_restored_through_its_result() -> None:
    @dyorc.workflow
    async def outer(x: Vector) -> Vector:
        y = one_after_the_other(x)
        await check(x)
        return y

    world = world_with(is_taking=False)
    world.submit(outer, [1, 1])
    world.finish(world.batches(add_one)[0])
    world.finish(world.batches(double)[0])
    restart(world, double)
    world.finish(world.batches(check)[0])
    assert not world.untaken
    assert len(world.batches(double)) + len(world.batches(add_one)) == 1
    world.finish_all()
    world.take()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_deadline_passes_while_an_answer_is_computed_again() -> None:
    @dyorc.workflow
    async def outer(x: Vector) -> Vector:
        y = add_one(x)
        await double(x)
        return y

    world = world_with()
    world.submit(outer, [1, 1], deadline_s=10.0)
    world.finish(world.batches(add_one)[0])
    world.leave("add_one")
    world.finish(world.batches(double)[0])
    assert 1 not in world.answers
    world.advance(11.0)
    with pytest.raises(DeadlineError):
        world.result(1)
    world.check_nothing_is_left()


# What is computed again


def test_lost_inputs_of_lost_results_come_first() -> None:
    world = world_with(check)
    world.submit(chain, [1, 1])
    world.finish_all()
    world.leave("add_one")
    world.leave("double")
    world.join(double)
    world.join(add_one)
    world.finish_all()
    assert world.sizes(double) == [1, 1]
    assert world.sizes(add_one) == [1, 1]
    world.join(check)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_long_chain_of_lost_results_is_no_deep_recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is its failure; what came before was released, so all of it is computed again."""
    monkeypatch.setattr("tests.unit.engine.driver.check_all", id)  # which would look at everything each time

    @dyorc.workflow
    async def lengthy(x: Vector) -> Vector:
        for _ in range(1500):
            x = add_one(x)
        return double(x)

    world = world_with(double)
    request_id = world.submit(lengthy, [0, 0])
    for _ in range(1500):
        world.finish()
    assert len(world.stored) == 1
    restart(world, add_one)
    (request,) = world.engine.tasks.requests.values()
    assert len(request.restoring) == 1500
    check_all(world.engine)
    world.fail()
    assert isinstance(world.answers[request_id], ProgramError)
    world.check_nothing_is_left()


def test_a_result_that_many_need_is_computed_again_once() -> None:
    @dyorc.workflow
    async def fan(x: Vector) -> Vector:
        y = add_one(x)
        return add(add(double(y), double(y)), check(y))

    world = world_with(double, check)
    world.submit(fan, [1, 1])
    world.finish()
    restart(world, add_one)
    world.finish()
    assert world.sizes(add_one) == [1, 1]
    world.join(double)
    world.join(check)
    world.finish_all()
    assert np.array_equal(world.result(1), [10, 10])
    world.check_nothing_is_left()


def test_only_what_was_lost_is_computed_again() -> None:
    world = world_with(double)
    world.submit_all(one_after_the_other, [[1, 1], [2, 2]])
    world.finish()
    world.submit(one_after_the_other, [3, 3])
    other = world.join(add_one, "other")
    world.finish_all()
    num_before = sum(world.sizes(add_one))
    world.leave(other)
    assert sum(world.sizes(add_one)) <= num_before + 1
    world.join(double)
    world.finish_all()
    assert [world.result(at).tolist() for at in (1, 2, 3)] == [[4, 4], [6, 6], [8, 8]]
    world.check_nothing_is_left()


def test_work_that_is_repeated_has_its_requests_place_in_the_queue() -> None:
    world = world_with(double)
    world.submit(one_after_the_other, [1, 1], deadline_s=100.0)
    world.finish()
    world.leave("add_one")
    world.submit_all(increment, [[5, 5]] * 4, deadline_s=200.0)
    world.join(add_one, "add_one")
    assert world.batches(add_one)[0].column()[0] == [1, 1]


def test_the_story_tells_what_was_lost() -> None:
    world = world_with(double)
    world.submit(one_after_the_other, [1, 1], explain=True)
    world.finish()
    restart(world, add_one)
    world.join(double)
    world.finish_all()
    steps = [(step["event"], step.get("program")) for step in world.stories[1]]
    assert steps.index(("lost", "add_one")) < steps.index(("recomputed", "add_one")) < steps.index(("done", "double"))
    assert "the result of add_one was lost with its replica; it is computed again" in as_text(world.stories[1])


# What cannot be


@pytest.mark.parametrize("need", ["call", "look", "answer"])
def test_a_result_that_must_not_be_repeated_fails_whoever_needs_it(need: str) -> None:
    @dyorc.workflow
    async def needs(x: Vector) -> Vector:
        y = send(x)
        await double(x)
        if need == "call":
            return add_one(y)
        return y if need == "answer" else add_one(await y)

    world = world_with()
    world.submit(needs, [1, 1])
    world.finish(world.batches(send)[0])
    restart(world, send)
    world.finish_all()
    with pytest.raises(
        EffectLostError, match="a result of program 'send' was lost with its replica; the program is not declared"
    ):
        world.result(1)
    assert world.sizes(send) == [1]
    world.check_nothing_is_left()


def test_a_result_with_an_effect_that_may_be_repeated_is() -> None:
    @dyorc.workflow
    async def puts(x: Vector) -> Vector:
        return double(put(x))

    world = world_with(double)
    world.submit(puts, [1, 1])
    world.finish()
    restart(world, put)
    world.join(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [2, 2])
    world.check_nothing_is_left()


def test_what_is_lost_again_and_again_fails() -> None:
    world = world_with(double)
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    for _ in range(2):
        restart(world, add_one)
        world.finish()
    restart(world, add_one)
    with pytest.raises(ReplicaLostError, match="a result of program 'add_one' was lost 3 times"):
        world.result(1)
    world.check_nothing_is_left()


def test_an_answer_that_can_never_be_read_fails() -> None:
    world = world_with(is_taking=False)
    world.submit(increment, [1, 1])
    for _ in range(3):
        world.finish_all()
        for block in list(world.stored):
            world.vanish(block)
        world.take()
    with pytest.raises(ReplicaLostError):
        world.result(1)
    world.check_nothing_is_left()


# Batches and fetches that did not find what they were sent to read


def test_a_batch_that_was_sent_before_its_inputs_were_lost_is_left_alone() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    restart(world, add_one)
    assert world.sizes(add_one) == [1]
    world.finish()
    assert np.array_equal(world.result(1), [4, 4])
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_a_batch_that_says_its_inputs_are_lost_runs_again_after_they_were_computed_again() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    restart(world, add_one)
    world.lose_inputs()
    assert not world.batches(double)
    assert world.sizes(add_one) == [1, 1]
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_block_that_its_holder_does_not_have_is_lost_though_the_holder_is_there() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    (block,) = world.stored
    world.vanish(block)
    world.lose_inputs()
    assert world.sizes(add_one) == [1, 1]
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_calls_of_such_a_batch_whose_inputs_are_there_go_on() -> None:
    world = world_with()
    world.join(add_one, "other")
    world.submit(one_after_the_other, [1, 1])
    world.submit(one_after_the_other, [2, 2])
    world.leave("double")
    while world.batches(add_one):
        world.finish()
    holders = {block[0] for block in world.stored}
    assert holders == {"add_one", "other"}
    world.join(double, "double")
    (batch,) = world.batches(double)
    lost = next(block for block in world.stored if block[0] == "other")
    world.vanish(lost)
    world.lose_inputs(batch, [lost])
    assert len(world.batches(double)) == 1
    assert world.batches(double)[0].size == 1
    world.finish_all()
    assert [world.result(at).tolist() for at in (1, 2)] == [[4, 4], [6, 6]]
    world.check_nothing_is_left()


def test_a_batch_that_never_finds_what_is_there_is_tried_a_few_times() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    for _ in range(3):
        world.lose_inputs(blocks=[("nobody", 7)])
    with pytest.raises(ReplicaLostError, match="the inputs of a call of program 'double' could not be had in 3 attempts"):
        world.result(1)
    assert world.sizes(double) == [1, 1, 1]
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_lost_inputs_do_not_count_as_a_replica_that_died() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    world.lose_inputs(blocks=[])
    (call,) = world.engine.scheduler.batches[world.oldest().action.batch_id].calls
    assert call.num_attempts == 0
    world.finish_all()
    world.check_nothing_is_left()


def test_a_message_about_a_batch_that_was_given_up_is_ignored() -> None:
    world = world_with()
    world.submit(increment, [1, 1])
    world.tell(TensorsLost("add_one", 999, [("add_one", 1)]))
    world.finish_all()
    world.check_nothing_is_left()


def test_a_fetch_that_never_finds_what_is_there_is_tried_a_few_times() -> None:
    world = world_with(is_fetching=False)
    world.submit(cascade, [1, 1])
    world.finish()
    for _ in range(3):
        fetch_id, _ = world.fetches.popitem()
        world.tell(ValueFetched(fetch_id, lost=[("nobody", 7)]))
    with pytest.raises(ReplicaLostError, match="could not be read in 3 attempts"):
        world.result(1)
    world.check_nothing_is_left()


def test_halves_of_a_failed_batch_are_checked_for_lost_inputs() -> None:
    world = world_with()
    world.submit_all(one_after_the_other, [[1, 1], [2, 2]])
    world.finish()
    restart(world, add_one)
    world.fail(world.batches(double)[0])
    world.finish_all()
    assert [world.result(at).tolist() for at in (1, 2)] == [[4, 4], [6, 6]]
    world.check_nothing_is_left()


def test_a_batch_that_dies_after_its_inputs_is_not_sent_to_read_them() -> None:
    world = world_with()
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    restart(world, add_one)
    restart(world, double)
    assert not world.batches(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


# Stopping


def test_a_cancelled_request_stops_restoring() -> None:
    world = world_with(double)
    world.submit(one_after_the_other, [1, 1])
    world.finish()
    world.leave("add_one")
    assert len(world.engine.scheduler.pools["add_one"].queue) == 1
    world.cancel(1)
    world.check_nothing_is_left()
    assert len(world.engine.scheduler.pools["add_one"].queue) == 0


def test_what_is_not_needed_any_more_is_not_restored() -> None:
    @dyorc.workflow
    async def loses_interest(x: Vector) -> Vector:
        y = add_one(x)
        double(y)
        return await check(x)

    world = world_with(double)
    world.submit(loses_interest, [1, 1])
    world.finish(world.batches(add_one)[0])
    world.leave("add_one")
    assert len(world.engine.scheduler.pools["add_one"].queue) == 1
    world.finish()
    assert np.array_equal(world.result(1), [1, 1])
    assert len(world.engine.scheduler.pools["add_one"].queue) == 0
    world.check_nothing_is_left()


# Guesses


def test_a_guess_whose_input_was_lost_waits_until_it_is_certain() -> None:
    @dyorc.workflow
    async def guarded(x: Vector) -> Vector:
        y = add_one(x)
        if await dyorc.when(check(x), lambda v: v.sum() >= 0, likely=True):
            return double(y)
        return x

    world = world_with(double, config=EngineConfig(speculation=SpeculationConfig(margin=0, max_wasted_ratio=0.9)))
    world.submit(guarded, [1, 1])
    world.finish(world.batches(add_one)[0])
    assert len(world.engine.scheduler.pools["double"].guesses) == 1
    restart(world, add_one)
    assert len(world.engine.scheduler.pools["double"].guesses) == 0
    assert world.sizes(add_one) == [1]
    world.finish(world.batches(check)[0])
    assert world.sizes(add_one) == [1, 1]
    world.join(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    world.check_nothing_is_left()


def test_a_guess_that_becomes_ready_with_a_lost_input_waits_until_it_is_certain() -> None:
    @dyorc.workflow
    async def guarded(x: Vector) -> Vector:
        y, z = add_one(x), double(x)
        if await dyorc.when(check(x), lambda v: v.sum() >= 0, likely=True):
            return add(y, z)
        return x

    world = world_with()
    world.submit(guarded, [1, 1])
    world.finish(world.batches(add_one)[0])
    restart(world, add_one)
    world.finish(world.batches(double)[0])
    assert world.sizes(add_one) == [1]
    world.finish(world.batches(check)[0])
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])


def test_a_guess_with_a_lost_input_is_no_reason_to_restore_it() -> None:
    @dyorc.workflow
    async def guarded(x: Vector) -> Vector:
        y, z = add_one(x), double(x)
        if await dyorc.when(check(x), lambda v: v.sum() >= 100, likely=True):
            return add(y, z)
        return x

    world = world_with(config=EngineConfig())
    world.submit(guarded, [1, 1])
    world.finish(world.batches(add_one)[0])
    restart(world, add_one)
    world.finish(world.batches(double)[0])
    world.finish_all()
    assert np.array_equal(world.result(1), [1, 1])
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_what_a_task_does_not_need_any_more_is_not_restored_though_its_request_goes_on() -> None:
    @dyorc.workflow
    async def inner(x: Vector, y: Vector) -> Vector:
        double(y)
        return await check(x)

    @dyorc.workflow
    async def outer(x: Vector) -> Vector:
        return put(inner(x, add_one(x)))

    world = world_with(double)
    world.submit(outer, [1, 1])
    world.finish(world.batches(add_one)[0])
    world.leave("add_one")
    assert len(world.engine.scheduler.pools["add_one"].queue) == 1
    world.finish(world.batches(check)[0])
    assert len(world.engine.scheduler.pools["add_one"].queue) == 0
    assert 1 not in world.answers
    world.finish_all()
    world.check_nothing_is_left()


def test_a_call_that_comes_back_to_its_queue_is_there_once() -> None:
    """A withdrawn call stays in its lane for some time; one that waits for lost inputs must not."""
    world = world_with(double)
    world.submit_all(one_after_the_other, [[1, 1], [2, 2]])
    world.finish_all()
    restart(world, add_one)
    world.finish_all()
    assert len(world.engine.scheduler.pools["double"].queue) == 2
    world.join(double)
    world.finish_all()
    assert sum(world.sizes(double)) == 2
    assert [world.result(at).tolist() for at in (1, 2)] == [[4, 4], [6, 6]]
    world.check_nothing_is_left()


def test_two_steps_in_one_turn_lose_nothing() -> None:
    """The result of one batch and the end of its replica arrive together."""
    world = world_with()
    world.submit(increment_twice, [1, 1])
    done = world.outcome(world.oldest())
    world.forget("add_one")
    world.tell(done, ReplicaLeft("add_one"))
    assert not world.in_flight
    world.join(add_one, "add_one")
    world.finish_all()
    assert np.array_equal(world.result(1), [3, 3])
    world.check_nothing_is_left()
