"""Work that cannot be done in time is refused before it takes device time, and only if that is certain enough."""

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.scheduling.latency import LatencyModel, LeastLatency
from dyorc.errors import DeadlineError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, increment, increment_twice, send


def experienced(program: dyorc.Program = add_one, workflow: dyorc.Workflow = increment, **limits: bool) -> World:
    """Returns a world that has seen enough batches: T(n) = 0.1 + 0.01 n seconds, without a link."""
    world = World([program], EngineConfig.model_validate(limits))
    world.join(program)
    for size in (1, 2, 3, 4) * 2:
        world.submit_all(workflow, [[0, 0]] * size)
        world.advance(0.1 + 0.01 * size)
        world.finish(execute_s=0.1 + 0.01 * size)
    world.history.clear()
    return world


def test_a_request_that_cannot_be_done_in_time_fails_at_once_and_takes_no_device_time() -> None:
    world = experienced()
    request_id = world.submit(increment, [1, 1], deadline_s=0.1)
    with pytest.raises(DeadlineError, match=r"cannot be met: a call of program 'add_one' would be done 0\.010 s after it"):
        world.result(request_id)
    assert world.history == []
    assert world.engine.tasks.answering.deadlines == {}


def test_a_request_that_can_just_be_done_in_time_runs() -> None:
    world = experienced()
    request_id = world.submit(increment, [1, 1], deadline_s=0.111)
    world.advance(0.11)
    world.finish(execute_s=0.11)
    assert np.array_equal(world.result(request_id), [2, 2])


def test_the_running_batch_is_taken_into_account() -> None:
    world = experienced()
    world.submit(increment, [0, 0])
    doomed = world.submit(increment, [1, 1], deadline_s=0.2)
    feasible = world.submit(increment, [2, 2], deadline_s=0.3)
    world.advance(0.1101)  # the next batch is due
    assert isinstance(world.answers.get(doomed), DeadlineError)
    assert world.batches(add_one)[-1].column() == [[2, 2]]
    world.finish_all()
    assert np.array_equal(world.result(feasible), [3, 3])


def test_a_full_batch_sent_behind_another_waits_for_it() -> None:
    world = experienced()
    world.submit(increment, [0, 0])
    doomed = [world.arrival(increment, [1, 1], deadline_s=0.2) for _ in range(4)]  # 0.11 + T(4) = 0.25
    world.tell(*doomed)
    assert all(isinstance(world.answers.get(event.request_id), DeadlineError) for event in doomed)
    world.tell(*(world.arrival(increment, [1, 1], deadline_s=0.3) for _ in range(4)))
    assert [batch.size for batch in world.batches(add_one)] == [1, 4]


def test_others_take_the_slots_of_those_that_are_dropped() -> None:
    world = experienced()
    late = [world.arrival(increment, [at, at], deadline_s=0.05) for at in range(4)]
    in_time = [world.arrival(increment, [at, at]) for at in range(4, 8)]
    world.tell(*late, *in_time)
    assert world.oldest().column() == [[at, at] for at in range(4, 8)]
    assert all(isinstance(world.answers[event.request_id], DeadlineError) for event in late)


def test_the_calls_of_a_dropped_request_leave_their_queues() -> None:
    @dyorc.workflow
    async def both(x: Vector) -> Vector:
        return add_one(x)

    world = experienced()
    world.submit(both, [0, 0], deadline_s=0.05)
    world.finish_all()
    world.workflows.clear()
    world.answers.clear()
    world.check_nothing_is_left()


def test_nothing_is_dropped_before_enough_batches_have_been_seen() -> None:
    world = World([add_one])
    world.join(add_one)
    world.submit(increment, [0, 0])
    world.finish(execute_s=60.0)  # the first is slow: it loads, it compiles
    world.submit(increment, [1, 1], deadline_s=1.0)
    assert len(world.in_flight) == 1


def test_nothing_is_dropped_if_dropping_is_switched_off() -> None:
    world = experienced(early_drop=False)
    world.submit(increment, [1, 1], deadline_s=0.01)
    assert len(world.in_flight) == 1


def test_an_old_measurement_is_tried_again() -> None:
    """Otherwise a program that was slow once would be refused for ever: nothing runs, so nothing is learned."""
    world = experienced()
    world.submit(increment, [1, 1], deadline_s=0.05)
    assert world.history == []
    world.advance(1.1)
    world.submit(increment, [1, 1], deadline_s=0.05)
    assert len(world.in_flight) == 1


def test_one_fast_batch_is_enough_to_trust_the_program_again() -> None:
    model = LatencyModel()
    least = LeastLatency(model)
    for seconds in (10.0,) * 20 + (0.1,):
        least.observe(1, seconds)
        model.observe(1, seconds)
    assert (model.predict(1) or 0) > 5
    assert (least.predict(1) or 1) < 0.11


def test_the_margin_is_how_much_batch_times_have_varied() -> None:
    model = LatencyModel()
    least = LeastLatency(model)
    rng = np.random.default_rng(0)
    num_wrong = 0
    for _ in range(1000):
        seconds = 0.1 * rng.uniform(0.8, 1.2)
        num_wrong += (least.predict(1) or 0.0) > seconds
        least.observe(1, seconds)
        model.observe(1, seconds)
    assert num_wrong < 100
    assert 0.08 <= (least.predict(1) or 0) <= 0.1


def test_a_size_never_seen_counts_as_the_largest_seen() -> None:
    model = LatencyModel()
    least = LeastLatency(model)
    for size in (1, 2) * 10:
        least.observe(size, 0.1 * size)
        model.observe(size, 0.1 * size)
    assert least.predict(32) == pytest.approx(0.2)


@dyorc.workflow
async def notify(x: Vector) -> Vector:
    send(x)
    return x


@dyorc.workflow
async def send_first(x: Vector) -> Vector:
    return add_one(send(x))


def test_a_call_with_an_effect_is_never_dropped() -> None:
    world = experienced(send, notify)
    world.submit(notify, [1, 1], deadline_s=0.01)
    assert len(world.in_flight) == 1


def test_a_request_that_has_had_an_effect_is_not_dropped() -> None:
    world = World([send, add_one])
    world.join(send)
    world.join(add_one)
    for _ in range(10):
        world.submit(increment, [0, 0])
        world.advance(1.0)
        world.finish(execute_s=1.0)
    world.history.clear()
    world.submit(send_first, [1, 1], deadline_s=0.5)
    world.submit(increment, [1, 1], deadline_s=0.5)
    world.finish()
    assert [batch.program for batch in world.history] == ["send", "add_one"]


def test_calls_of_cancelled_and_expired_requests_are_not_dispatched() -> None:
    world = experienced()
    world.submit_all(increment, [[0, 0]] * 8)  # two full batches: the replica takes no more
    world.history.clear()
    cancelled = world.submit(increment, [1, 1])
    expired = world.submit(increment_twice, [2, 2], deadline_s=0.01)
    world.cancel(cancelled)
    world.advance(0.02)
    world.finish_all()
    assert isinstance(world.answers[expired], DeadlineError)
    assert world.history == []
