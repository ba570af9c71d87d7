"""Programs that raise, replicas that die or hang, programs that cannot be loaded."""

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.actions import FormReason
from dyorc.engine.events import BatchDone
from dyorc.errors import EffectLostError, ProgramError, ProgramLoadError, SuspectInputError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add, add_one, check, checked, double, increment, put, send


def test_a_lost_replica_s_calls_run_on_another() -> None:
    world = World([add_one])
    first = world.join(add_one)
    request_ids = world.submit_all(increment, [[at, at] for at in range(3)])
    world.leave(first)
    assert not world.answers
    world.join(add_one)
    world.finish_all()
    assert [world.result(at)[0] for at in request_ids] == [1, 2, 3]


def test_both_batches_of_a_lost_replica_run_again() -> None:
    world = World([add_one])
    first = world.join(add_one)
    world.submit_all(increment, [[0, 0]] * 8)
    assert len(world.in_flight) == 2
    world.leave(first)
    world.join(add_one)
    world.finish_all()
    assert len(world.answers) == 8
    world.check_nothing_is_left()


def test_a_call_whose_replicas_die_again_and_again_is_tried_alone_and_then_fails() -> None:
    world = World([add_one])
    request_ids = world.submit_all(increment, [[0, 0], [1, 1]])
    for expected in ([2], [2, 2]):
        replica_id = world.join(add_one)
        assert world.sizes(add_one) == expected
        world.leave(replica_id)
    # Both have been on two replicas that died: now each runs alone, one after another.
    replica_id = world.join(add_one)
    assert world.sizes(add_one) == [2, 2, 1]
    assert world.oldest().action.reason is FormReason.RETRY
    world.leave(replica_id)
    with pytest.raises(SuspectInputError, match=r"program 'add_one' lost 3 replicas while running this call \(connection lost\)"):
        world.result(request_ids[0])
    world.join(add_one)
    world.finish_all()
    assert np.array_equal(world.result(request_ids[1]), [2, 2])
    world.check_nothing_is_left()


@dyorc.workflow
async def sending(x: Vector) -> Vector:
    return send(x)


@dyorc.workflow
async def putting(x: Vector) -> Vector:
    return put(x)


def test_an_impure_call_is_not_repeated_when_its_replica_is_lost() -> None:
    world = World([send])
    replica_id = world.join(send)
    request_id = world.submit(sending, [1, 1])
    world.leave(replica_id)
    with pytest.raises(EffectLostError, match="not declared idempotent, so it is not run again"):
        world.result(request_id)
    world.check_nothing_is_left()


def test_an_idempotent_call_is_repeated_when_its_replica_is_lost() -> None:
    world = World([put])
    replica_id = world.join(put)
    request_id = world.submit(putting, [1, 1])
    world.leave(replica_id)
    world.join(put)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [1, 1])


def test_an_impure_batch_that_raises_is_not_split_and_repeated() -> None:
    world = World([send])
    world.join(send)
    world.submit_all(sending, [[0, 0]] * 3)
    world.fail()
    assert len(world.history) == 1
    assert all(isinstance(answer, ProgramError) for answer in world.answers.values())


def test_one_bad_input_fails_alone() -> None:
    world = World([check])
    world.join(check)
    request_ids = world.submit_all(checked, [[at, -1 if at == 13 else 0] for at in range(32)])
    world.finish_all()
    assert world.sizes(check)[0] == 32
    for at, request_id in enumerate(request_ids):
        if at == 13:
            with pytest.raises(ProgramError, match="program 'check' failed: ValueError: a number is negative") as caught:
                world.result(request_id)
            assert caught.value.error_type == "ValueError"
            assert "raise ValueError" in caught.value.remote_traceback
        else:
            assert np.array_equal(world.result(request_id), [at, 0])
    assert len(world.history) <= 1 + 2 * 5, "halving needs two batches for each of log2(32) steps"
    world.check_nothing_is_left()


def test_the_last_needed_call_does_not_fail_because_another_was_cancelled() -> None:
    world = World([check])
    world.join(check)
    good, bad = world.submit_all(checked, [[1, 1], [-1, 0]])
    world.cancel(bad)
    world.finish_all()
    assert world.sizes(check) == [2, 1]
    assert np.array_equal(world.result(good), [1, 1])


def test_halves_of_a_failed_batch_take_no_further_calls() -> None:
    world = World([check])
    world.join(check)
    world.submit_all(checked, [[0, -1], [1, 0]])
    world.submit(checked, [2, 0])
    world.finish()
    assert [batch.size for batch in world.batches(check)] == [1, 1]
    assert all(batch.action.reason is FormReason.RETRY for batch in world.batches(check))
    world.finish_all()
    assert world.history[-1].column() == [[2, 0]]


def test_a_result_of_another_length_than_its_batch_is_a_failure() -> None:
    world = World([add_one], is_storing=True)
    world.join(add_one)
    world.submit(increment, [1, 1])
    batch = world.oldest()
    del world.in_flight[batch.action.batch_id]
    extra = [(world.keep(np.zeros(2, np.float32)),) for _ in range(2)]
    world.tell(BatchDone(batch.action.replica_id, batch.action.batch_id, extra, 0.01))
    with pytest.raises(ProgramError, match="a batch of 1 came back with 2 results"):
        world.result(1)
    world.check_nothing_is_left()


def test_a_result_that_comes_after_its_replica_was_given_up_is_dropped_and_released() -> None:
    world = World([add_one], is_storing=True)
    replica_id = world.join(add_one)
    request_id = world.submit(increment, [1, 1])
    late = world.outcome(world.oldest())
    world.leave(replica_id)
    world.join(add_one)
    world.finish_all()
    world.tell(late)
    assert np.array_equal(world.result(request_id), [2, 2])
    world.check_nothing_is_left()


def test_a_replica_that_hangs_is_replaced_and_its_calls_run_again() -> None:
    hasty = add_one.with_options(name="hasty", execution_timeout_s=2.0)

    @dyorc.workflow
    async def increment_hastily(x: Vector) -> Vector:
        return hasty(x)

    world = World([hasty])
    world.join(hasty, "hanging")
    request_id = world.submit(increment_hastily, [1, 1])
    world.advance(1.9)
    assert world.replaced == []
    world.advance(0.2)
    assert world.replaced == ["hanging"]
    world.join(hasty)
    world.finish()
    assert np.array_equal(world.result(request_id), [2, 2])


def test_the_time_of_a_batch_counts_from_its_start_not_from_its_dispatch() -> None:
    hasty = add_one.with_options(name="hasty", execution_timeout_s=2.0)

    @dyorc.workflow
    async def increment_hastily(x: Vector) -> Vector:
        return hasty(x)

    world = World([hasty])
    world.join(hasty)
    world.submit_all(increment_hastily, [[1, 1]] * 8)
    assert len(world.in_flight) == 2
    world.advance(1.5)
    world.finish()
    world.advance(1.5)
    assert world.replaced == []
    world.advance(0.6)
    assert world.replaced == ["hasty#0"]


def test_a_program_that_cannot_be_loaded_fails_its_calls_with_its_own_text() -> None:
    world = World([add_one], EngineConfig(max_load_failures=2))
    request_id = world.submit(increment, [1, 1])
    world.fail_load(add_one, "weights.safetensors is missing")
    assert not world.answers
    world.fail_load(add_one, "weights.safetensors is missing")
    with pytest.raises(ProgramLoadError, match=r"program 'add_one' failed: OSError: weights\.safetensors is missing"):
        world.result(request_id)
    later = world.submit(increment, [1, 1])
    with pytest.raises(ProgramLoadError):
        world.result(later)
    world.check_nothing_is_left()


def test_a_program_that_could_not_be_loaded_recovers_when_a_replica_joins() -> None:
    world = World([add_one], EngineConfig(max_load_failures=1))
    world.fail_load(add_one)
    replica_id = world.join(add_one)
    request_id = world.submit(increment, [1, 1])
    world.finish()
    assert np.array_equal(world.result(request_id), [2, 2])
    world.leave(replica_id)
    waiting = world.submit(increment, [1, 1])
    assert waiting not in world.answers, "the count of failures starts again after a success"


def test_load_failures_do_not_touch_calls_while_another_replica_serves() -> None:
    world = World([add_one], EngineConfig(max_load_failures=1))
    world.join(add_one)
    request_id = world.submit(increment, [1, 1])
    world.fail_load(add_one)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 2])


# Calls with an effect


@dyorc.workflow
async def answer_and_send(x: Vector) -> Vector:
    send(double(x))
    return add_one(x)


@pytest.fixture
def effects() -> World:
    world = World([send, double, add_one, add, check], is_storing=True)
    for program in world.programs:
        world.join(program)
    return world


def test_an_impure_call_runs_even_if_nobody_waits_for_it(effects: World) -> None:
    request_id = effects.submit(answer_and_send, [1, 2])
    effects.finish(effects.batches(add_one)[0])
    assert np.array_equal(effects.result(request_id), [2, 3])
    effects.finish_all()
    assert effects.history[-1].program == "send"
    assert effects.history[-1].column() == [[2, 4]]
    effects.check_nothing_is_left()


@dyorc.workflow
async def send_it(x: Vector, y: Vector) -> Vector:
    send(x)
    return y


@dyorc.workflow
async def send_through_a_task(x: Vector) -> Vector:
    await send_it(double(x), x)
    return add_one(x)


def test_the_inputs_of_an_effect_in_a_finished_task_are_computed(effects: World) -> None:
    request_id = effects.submit(send_through_a_task, [1, 2])
    effects.finish(effects.batches(add_one)[0])
    assert np.array_equal(effects.result(request_id), [2, 3])
    effects.finish_all()
    assert effects.history[-1].column() == [[2, 4]]
    effects.check_nothing_is_left()


@dyorc.workflow
async def send_the_sum(x: Vector) -> Vector:
    send(add(check(x), double(x)))
    return x


def test_the_inputs_of_a_failed_effect_are_withdrawn_with_it(effects: World) -> None:
    request_id = effects.submit(send_the_sum, [-1, 2])
    assert np.array_equal(effects.result(request_id), [-1, 2])
    effects.finish(effects.batches(check)[0])
    assert effects.sizes(send) == []
    effects.finish_all()
    effects.check_nothing_is_left()


def test_cancelling_withdraws_effects_that_have_not_been_sent(effects: World) -> None:
    request_id = effects.submit(send_through_a_task, [1, 2])
    effects.cancel(request_id)
    effects.finish_all()
    assert effects.sizes(send) == []
    effects.check_nothing_is_left()
