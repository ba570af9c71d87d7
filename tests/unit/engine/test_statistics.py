"""Counts and times of requests and calls."""

import msgspec

import dyorc
from dyorc.authoring.workflow import of_program
from dyorc.config import EngineConfig
from dyorc.engine.engine import Engine
from dyorc.engine.engine_context import Host
from dyorc.engine.events import BatchDone
from dyorc.engine.tallies import BatchTally, ModelStatistics, Tally
from tests.unit.engine.driver import World
from tests.unit.engine.programs import add_one, checked, increment, increment_twice

MS = 1_000_000


def of(world: World, model: dyorc.Program | dyorc.Workflow) -> ModelStatistics:
    return world.engine.statistics(model.name)


def finish(world: World, after_s: float, gather_s: float = 0.0, infer_s: float | None = None, publish_s: float = 0.0) -> None:
    """Finishes the oldest batch after a time; the replica accounts for a part of it."""
    world.advance(after_s)
    done = world.outcome(world.oldest(), 0.006)
    assert isinstance(done, BatchDone)
    world.tell(
        BatchDone(done.replica_id, done.batch_id, done.outputs, 0.006, gather_s=gather_s, infer_s=infer_s, publish_s=publish_s)
    )


def test_a_programs_calls_and_batches_are_counted() -> None:
    """Two calls wait for 5 ms, then run for 10 ms: 1 for inputs, 6 in the program, 2 for outputs, and 1 on the way."""
    world = World([add_one])
    world.submit_all(increment, [[0, 0]] * 2)
    world.advance(0.005)
    world.join(add_one)
    finish(world, 0.010, gather_s=0.001, infer_s=0.006, publish_s=0.002)
    times = {"compute_input": 1.5, "compute_infer": 6.0, "compute_output": 2.5}
    assert of(world, add_one) == ModelStatistics(
        last_inference_ms=world.now_ns // MS,
        inference_count=2,
        execution_count=1,
        success=Tally(2, 2 * 15 * MS),
        queue=Tally(2, 2 * 5 * MS),
        batches={2: BatchTally(**{name: Tally(1, int(ms * MS)) for name, ms in times.items()})},
        **{name: Tally(2, int(2 * ms * MS)) for name, ms in times.items()},
    )


def test_waiting_behind_another_batch_on_the_replica_counts_as_queueing() -> None:
    world = World([add_one])
    world.join(add_one)
    world.submit_all(increment, [[0, 0]] * 5)
    assert len(world.in_flight) == 1
    world.submit_all(increment, [[0, 0]] * 3)
    assert len(world.in_flight) == 2
    finish(world, 0.010)
    finish(world, 0.010)
    assert of(world, add_one).queue == Tally(8, 4 * 10 * MS)
    assert of(world, add_one).compute_infer == Tally(8, 8 * 6 * MS)


def test_a_workflows_requests_and_the_times_of_its_calls_are_counted() -> None:
    world = World([add_one])
    world.join(add_one)
    world.submit(increment_twice, [0, 0])
    finish(world, 0.010)
    finish(world, 0.010)
    totals = of(world, increment_twice)
    assert (totals.inference_count, totals.execution_count, totals.success) == (1, 1, Tally(1, 20 * MS))
    assert (totals.compute_infer, totals.queue, totals.fail) == (Tally(2, 12 * MS), Tally(2, 0), Tally())
    assert totals.last_inference_ms == world.now_ns // MS
    assert of(world, add_one).inference_count == 2


def test_workflows_that_share_a_batch_have_their_own_calls() -> None:
    world = World([add_one])
    world.join(add_one)
    world.tell(world.arrival(increment, [0, 0]), world.arrival(increment, [0, 0]), world.arrival(increment_twice, [0, 0]))
    finish(world, 0.010)
    assert of(world, increment).compute_infer == Tally(2, 12 * MS)
    assert of(world, increment_twice).compute_infer == Tally(1, 6 * MS)


def test_failures_are_counted() -> None:
    check = next(iter(checked.programs))
    world = World([check])
    world.join(check)
    world.submit_all(checked, [[-1, 0], [1, 0]])
    while world.in_flight:
        world.advance(0.010)
        world.finish()
    assert (of(world, check).fail.count, of(world, check).success.count) == (1, 1)
    assert (of(world, checked).fail.count, of(world, checked).success.count) == (1, 1)
    assert of(world, check).fail.ns > 0


def test_requests_that_end_without_a_result_have_failed() -> None:
    world = World([add_one], EngineConfig(max_requests=2))
    world.submit(increment, [0, 0], deadline_s=0.5)
    cancelled = world.submit(increment, [0, 0])
    world.submit(increment, [0, 0])  # refused
    world.cancel(cancelled)
    world.advance(1.0)
    assert of(world, increment).fail.count == 3
    assert of(world, add_one) == ModelStatistics(), "calls that were withdrawn count neither as one nor as the other"


def test_a_program_that_is_called_as_a_model_has_its_own_statistics() -> None:
    """Whatever became of the request, it counts once."""
    world = World([add_one])
    model = of_program(add_one)
    world.submit(model, [0, 0])
    world.submit(model, [0, 0], deadline_s=0.5)
    world.advance(0.6)
    world.join(add_one)
    world.finish()
    assert (of(world, model).success.count, of(world, model).fail.count) == (1, 1)


def test_an_engine_that_takes_over_goes_on_counting_and_counts_lost_requests_as_failed() -> None:
    host = Host()
    world = World([add_one], host=host)
    world.join(add_one)
    world.submit(increment, [0, 0])
    world.finish()
    world.submit(increment, [0, 0])
    world.engine.give_up()
    successor = Engine(EngineConfig(), [add_one], host)
    assert successor.statistics("increment").success.count == 1
    assert successor.statistics("increment").fail.count == 1
    assert successor.statistics("add_one").success.count == 1


def test_times_are_reported_as_unix_time() -> None:
    world = World([add_one])
    world.join(add_one)
    assert of(world, add_one).last_inference_ms == 0
    world.submit(increment, [0, 0])
    world.finish()
    assert world.engine.statistics("add_one", 7_000 * MS).last_inference_ms == 7_000 + world.now_ns // MS


def test_a_model_that_was_never_used_has_zeros() -> None:
    assert World([add_one]).engine.statistics("unheard of") == ModelStatistics()


def test_what_was_counted_is_read_as_what_it_was_in_another_process() -> None:
    counted = ModelStatistics(inference_count=3, batches={2: BatchTally(compute_infer=Tally(1, 5))})
    assert msgspec.json.decode(msgspec.json.encode(counted), type=ModelStatistics) == counted
