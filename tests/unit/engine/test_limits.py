"""Deadlines, cancellation, bounded queues, and tensors that are kept aside."""

import subprocess
import sys

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.events import RequestCancelled, TimerFired, ValueFetched
from dyorc.engine.scheduling.lanes import Lanes
from dyorc.errors import CapacityError, DeadlineError, RequestCancelledError, TransportError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, cascade, double, increment, increment_twice


def test_a_request_whose_deadline_passes_fails_and_is_not_dispatched() -> None:
    world = World([add_one])
    request_id = world.submit(increment, [1, 1], deadline_s=1.0)
    world.advance(0.99)
    assert not world.answers
    world.advance(0.02)
    with pytest.raises(DeadlineError):
        world.result(request_id)
    world.join(add_one)
    assert world.history == []
    world.check_nothing_is_left()


def test_a_timer_that_fires_early_is_set_again() -> None:
    world = World([add_one])
    request_id = world.submit(increment, [1, 1], deadline_s=1.0)
    due_ns = world.wake_ns
    assert due_ns is not None
    for early_ns in (900_000, 1):  # event loops count in milliseconds
        world.now_ns, world.wake_ns = due_ns - early_ns, None
        world.tell(TimerFired())
        assert world.wake_ns == due_ns
    world.advance(1e-9)
    with pytest.raises(DeadlineError):
        world.result(request_id)
    world.check_nothing_is_left()


def test_a_deadline_error_is_a_timeout_error() -> None:
    assert issubclass(DeadlineError, TimeoutError)


def test_the_result_of_a_call_that_ran_past_its_deadline_is_dropped() -> None:
    world = World([add_one], is_storing=True)
    world.join(add_one)
    world.submit(increment_twice, [1, 1], deadline_s=1.0)
    world.advance(2.0)
    world.finish_all()
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_a_request_that_comes_too_late_runs_nothing() -> None:
    world = World([add_one])
    world.join(add_one)
    request_id = world.submit(increment, [1, 1], deadline_s=-1.0)
    with pytest.raises(DeadlineError):
        world.result(request_id)
    assert world.history == []


def test_without_a_deadline_the_configured_one_applies() -> None:
    world = World([add_one], EngineConfig(request_timeout_s=5.0))
    request_id = world.submit(increment, [1, 1])
    world.advance(4.9)
    assert not world.answers
    world.advance(0.2)
    assert isinstance(world.answers[request_id], DeadlineError)


def test_a_cancelled_request_is_not_dispatched() -> None:
    world = World([add_one])
    kept = world.submit(increment, [1, 1])
    cancelled = world.submit(increment, [2, 2])
    world.cancel(cancelled)
    world.join(add_one)
    assert world.oldest().column() == [[1, 1]]
    world.finish()
    assert np.array_equal(world.result(kept), [2, 2])
    with pytest.raises(RequestCancelledError):
        world.result(cancelled)
    world.check_nothing_is_left()


def test_a_request_cancelled_as_it_arrives_runs_nothing() -> None:
    world = World([add_one])
    world.join(add_one)
    arrival = world.arrival(increment, [1, 1])
    world.tell(arrival, RequestCancelled(arrival.request_id))
    assert world.history == []
    world.check_nothing_is_left()


def test_cancelling_after_the_answer_does_nothing() -> None:
    world = World([add_one])
    world.join(add_one)
    request_id = world.submit(increment, [1, 1])
    world.finish()
    world.cancel(request_id)
    assert np.array_equal(world.result(request_id), [2, 2])


def test_many_cancelled_calls_leave_the_queue_at_once() -> None:
    world = World([add_one])
    request_ids = world.submit_all(increment, [[0, 0]] * 200)
    for request_id in request_ids[:150]:
        world.cancel(request_id)
    queue = world.engine.scheduler.pools["add_one"].queue
    assert len(queue) == 50
    lanes = queue._lanes
    assert isinstance(lanes, Lanes)
    assert len(lanes._lanes[(), ()]) < 2 * 50 + 64
    world.join(add_one)
    world.finish_all()
    world.check_nothing_is_left()


def test_requests_beyond_the_limit_are_turned_away() -> None:
    world = World([add_one], EngineConfig(max_requests=2), is_storing=True)
    world.join(add_one)
    request_ids = world.submit_all(increment, [[1, 1]] * 3)
    with pytest.raises(CapacityError, match="2 requests are in flight, the limit is 2"):
        world.result(request_ids[2])
    world.finish_all()
    assert world.result(request_ids[1]) is not None
    world.check_nothing_is_left()


def test_a_full_queue_turns_requests_away_and_says_when_to_come_back() -> None:
    small = add_one.with_options(name="small", max_queued_calls=8)

    @dyorc.workflow
    async def increment_small(x: Vector) -> Vector:
        return small(x)

    world = World([small])
    world.join(small)
    world.submit(increment_small, [0, 0])
    world.finish(execute_s=2.0)
    world.submit_all(increment_small, [[0, 0]] * 16)  # two batches of 4 in flight, 8 calls wait
    request_id = world.submit(increment_small, [0, 0])
    with pytest.raises(CapacityError, match="8 calls of program 'small' are waiting, the limit is 8") as caught:
        world.result(request_id)
    assert caught.value.retryable
    assert caught.value.retry_after_s == pytest.approx(4.0)
    world.finish_all()
    world.check_nothing_is_left()


def test_requests_that_do_not_need_the_full_program_are_taken() -> None:
    small = double.with_options(name="small", max_queued_calls=1)

    @dyorc.workflow
    async def double_small(x: Vector) -> Vector:
        return small(x)

    world = World([small, add_one])
    world.join(add_one)
    world.submit(double_small, [0, 0])
    request_id = world.submit(increment, [0, 0])
    world.finish()
    assert np.array_equal(world.result(request_id), [1, 1])


def test_remote_values_are_fetched_before_the_workflow_reads_them() -> None:
    world = World([add_one, double], is_storing=True, is_fetching=False)
    world.join(add_one)
    world.join(double)
    request_id = world.submit(cascade, [1, 2])
    world.finish()
    assert not world.in_flight
    assert [[array.tolist() for array in world.read(tensors)[0]] for tensors in world.fetches.values()] == [[[2, 3]]]
    world.fetch()
    world.finish()
    assert np.array_equal(world.result(request_id), [2, 4])
    world.check_nothing_is_left()


def test_a_value_that_nobody_reads_is_not_fetched() -> None:
    world = World([add_one], is_storing=True, is_fetching=False)
    world.join(add_one)
    world.submit(increment_twice, [0, 0])
    world.finish_all()
    assert not world.fetches
    assert np.array_equal(world.result(1), [2, 2])


def test_a_value_that_cannot_be_fetched_raises_in_the_workflow() -> None:
    world = World([add_one, double], is_storing=True, is_fetching=False)
    world.join(add_one)
    request_id = world.submit(cascade, [0, 0])
    world.finish()
    fetch_id, _ = world.fetches.popitem()
    world.tell(ValueFetched(fetch_id, error=TransportError("the node is gone")))
    with pytest.raises(TransportError, match="the node is gone"):
        world.result(request_id)
    world.check_nothing_is_left()


def test_a_fetch_for_a_cancelled_request_is_ignored() -> None:
    world = World([add_one, double], is_storing=True, is_fetching=False)
    world.join(add_one)
    world.submit(cascade, [0, 0])
    world.finish()
    world.cancel(1)
    world.fetch()
    world.check_nothing_is_left()


@pytest.mark.parametrize("ending", ["answer", "cancel", "deadline", "refusal"])
def test_every_stored_tensor_is_released_exactly_once(ending: str) -> None:
    world = World([add_one, double], EngineConfig(max_requests=1), is_storing=True)
    world.join(add_one)
    world.join(double)
    world.submit(cascade, [0, 0], deadline_s=10.0)
    if ending == "refusal":
        world.submit(cascade, [0, 0])
    world.finish()
    if ending == "cancel":
        world.cancel(1)
    if ending == "deadline":
        world.advance(11.0)
    world.finish_all()
    assert world.released
    world.check_nothing_is_left()


def test_nothing_grows_with_the_requests_served() -> None:
    world = World([add_one])
    world.join(add_one)
    world.join(add_one)
    for _ in range(500):
        world.submit(increment, [0, 0])
        world.finish()
    pool = world.engine.scheduler.pools["add_one"]
    lanes = pool.queue._lanes
    assert isinstance(lanes, Lanes)
    sizes = (
        len(pool._prefetchable),
        len(lanes._fronts),
        len(lanes._lanes),
        len(pool.guesses._fronts),
        len(pool.foreseen),
        len(world.engine.timers._heap),
        len(world.engine.tasks.requests),
        len(world.engine.tasks.fetches.waiters),
    )
    assert max(sizes) < 150, sizes


def test_the_engine_needs_no_torch_no_ray_and_no_sockets() -> None:
    """Module `asyncio` is loaded, because jaxtyping and pydantic-settings import it. import-linter checks that the engine does
    not.
    """
    code = (
        "import sys, numpy as np, dyorc, dyorc.engine.engine, dyorc.engine.invariants\n"
        "from tests.unit.engine.programs import cascade\n"
        "assert dyorc.run(cascade, [1, 2]).tolist() == [2, 4]\n"
        "print(sorted({'torch', 'ray', 'zmq', 'grpc', 'fastapi'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
