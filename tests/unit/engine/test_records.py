"""What the engine counts of programs and workflows beyond the protocol's statistics: why, how often, how long, for nothing."""

import pytest

from dyorc.config import EngineConfig
from dyorc.engine.engine_context import Host
from dyorc.engine.engine_statistics import ModelRecord
from dyorc.engine.estimators import DURATION_BOUNDS_NS, LATENCY_BOUNDS_NS, Histogram
from tests.unit.engine.driver import World
from tests.unit.engine.programs import add_one, double, increment
from tests.unit.engine.speculative_world import BAD, GOOD, Says, counts, guarded, world_with
from tests.unit.engine.test_holding import only_double, start
from tests.unit.engine.test_holding import world_with as holding_world

MS = 1_000_000


def above(histogram: Histogram, bound_ns: int) -> int:
    """Returns how many values were larger than a bound."""
    return sum(histogram.over(DURATION_BOUNDS_NS).counts[DURATION_BOUNDS_NS.index(bound_ns) + 1 :])


def test_a_value_counts_up_to_the_bound_that_it_equals() -> None:
    histogram = Histogram([10, 20])
    for value in (0, 10, 11, 20, 21):
        histogram.add(value)
    assert (histogram.counts, histogram.total) == ([2, 2, 1], 62)


def test_many_buckets_become_those_of_prometheus() -> None:
    took_ns = [1, 100_000, 100_001, 62 * MS, 62 * MS, 99 * MS, 300_000 * MS, 300_000 * MS + 1, 10**12]
    fine, coarse = Histogram(LATENCY_BOUNDS_NS), Histogram(DURATION_BOUNDS_NS)
    for histogram in (fine, coarse):
        histogram.add_all(took_ns)
    merged = fine.over(DURATION_BOUNDS_NS)
    assert (merged.counts, merged.total) == (coarse.counts, coarse.total)


def test_each_call_waits_for_itself() -> None:
    """One call waits for 15 ms, the other for 5."""
    host = Host()
    world = World([add_one], host=host)
    world.submit(increment, [0, 0])
    world.advance(0.010)
    world.submit(increment, [0, 0])
    world.advance(0.005)
    world.join(add_one)
    world.finish()
    waits = host.statistics.of_program("add_one").waits
    assert (sum(waits.counts), waits.total, above(waits, 10 * MS)) == (2, 20 * MS, 1)


def test_answered_requests_count_by_how_long_they_took() -> None:
    host = Host()
    world = World([add_one], host=host)
    world.join(add_one)
    world.submit(increment, [0, 0], deadline_s=9.0)
    world.advance(0.7)
    world.finish()
    world.submit(increment, [0, 0], deadline_s=0.001)
    world.advance(0.1)
    latency = host.statistics.of_workflow("increment").latency
    assert (sum(latency.counts), above(latency, 500 * MS)) == (1, 1), "a request that failed says nothing of the others"


def test_failed_requests_count_by_the_codes_of_their_errors() -> None:
    host = Host()
    world = World([add_one], EngineConfig(max_requests=2), host=host)
    world.submit(increment, [0, 0], deadline_s=0.5)
    cancelled = world.submit(increment, [0, 0])
    world.submit(increment, [0, 0])
    world.cancel(cancelled)
    world.advance(1.0)
    world.submit(increment, [0, 0])
    world.engine.give_up()
    expected = {"capacity": 1, "cancelled": 1, "deadline": 1, "internal": 1}
    assert host.statistics.of_workflow("increment").failures == expected


def test_batches_count_by_why_they_were_formed() -> None:
    host = Host()
    world = World([add_one], host=host)
    world.join(add_one)
    world.submit(increment, [0, 0])
    world.submit_all(increment, [[0, 0]] * (add_one.options.max_batch_size + 1))
    world.finish_all()
    assert host.statistics.of_program("add_one").reasons == {"QUEUE_EMPTIED": 2, "FULL": 1}


def test_a_held_batch_counts_with_the_calls_that_joined_and_the_time_it_took() -> None:
    world = holding_world()
    start(world, 1, 0.09)
    world.submit(only_double, [7, 7])
    world.advance(0.02)
    world.finish()
    holds = world.engine.scheduler.pools[double.name].record.holds
    assert (holds.num, holds.num_joined, holds.held_ns) == (1, 1, 20 * MS)


def test_a_batch_that_nobody_held_is_no_hold() -> None:
    world = holding_world()
    world.submit(only_double, [7, 7])
    world.finish_all()
    assert world.engine.scheduler.pools[double.name].record.holds.num == 0


def guesses_of(record: ModelRecord) -> tuple[int, int, int]:
    guesses = record.guesses
    return guesses.num_made, guesses.num_committed, guesses.num_squashed


@pytest.mark.parametrize("inputs", [GOOD, BAD])
def test_guesses_count_for_their_program_and_for_their_workflow(inputs: list[int]) -> None:
    host = Host()
    world = world_with(host=host)
    for _ in range(3):
        world.submit(guarded, inputs)
        world.finish_all()
    made, committed, squashed = counts(world)
    assert made
    statistics = host.statistics
    assert guesses_of(statistics.of_workflow("guarded")) == (made, committed, squashed)
    of_programs = [guesses_of(record) for record in statistics.programs.values()]
    assert tuple(map(sum, zip(*of_programs, strict=True))) == (made, committed, squashed)
    total = world.engine.speculator.total
    for records in (statistics.programs, statistics.workflows):
        assert sum(record.guesses.useful_s for record in records.values()) == pytest.approx(total.useful_s)
        assert sum(record.guesses.wasted_s for record in records.values()) == pytest.approx(total.wasted_s)


@pytest.mark.parametrize(("inputs", "num_replays"), [(GOOD, 0), (BAD, 1)])
def test_a_workflow_that_is_run_again_because_no_guess_was_right_counts_as_replayed(inputs: list[int], num_replays: int) -> None:
    host = Host()
    world = world_with(Says({True: 1.0}), host=host)
    world.submit(guarded, inputs)
    world.finish_all()
    assert host.statistics.of_workflow("guarded").num_replays == num_replays
