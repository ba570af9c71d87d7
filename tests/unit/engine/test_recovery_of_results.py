"""Which lost results are computed again, and which fail the requests that need them."""

import numpy as np
import pytest

import dyorc
from dyorc.engine.invariants import check_all
from dyorc.engine.trace_text import as_text
from dyorc.errors import EffectLostError, ProgramError, ReplicaLostError
from tests.unit.engine.lossy_world import one_after_the_other, restart, world_with
from tests.unit.engine.programs import Vector, add, add_one, check, double, increment, put, send


@dyorc.workflow
async def chain(x: Vector) -> Vector:
    return check(double(add_one(x)))


def test_lost_inputs_of_lost_results_are_computed_first() -> None:
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


def test_a_long_chain_of_lost_results_does_not_recurse_deeply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does its failure. Earlier results were released, so the whole chain is computed again."""
    monkeypatch.setattr("tests.unit.engine.driver.check_all", id)  # it would check the whole chain at every step

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


def test_a_result_that_several_calls_need_is_computed_again_only_once() -> None:
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


def test_repeated_work_keeps_its_requests_place_in_the_queue() -> None:
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
    steps = [(step["event"], step.get("program")) for step in world.stories[1].steps()]
    assert steps.index(("lost", "add_one")) < steps.index(("recomputed", "add_one")) < steps.index(("done", "double"))
    assert "the result of add_one was lost with its replica; it is computed again" in as_text(world.stories[1].steps())


@pytest.mark.parametrize("need", ["call", "look", "answer"])
def test_a_lost_result_that_must_not_be_computed_again_fails_its_request(need: str) -> None:
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


def test_a_lost_result_whose_effect_may_be_repeated_is_computed_again() -> None:
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


def test_a_result_that_is_lost_again_and_again_fails_its_request() -> None:
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
