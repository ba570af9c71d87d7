"""Streams whose readers or producers run again: what a new run has yet to read stays, and so do inputs of a batch given up."""

import pytest

import dyorc
from tests.unit.engine.programs import Vector, check, double
from tests.unit.engine.yielding_world import ALWAYS, count_up, sum_up, yielding_world


@dyorc.workflow
async def summed_on_a_guess(x: Vector) -> Vector:
    stream = count_up(x, length=3)
    if await dyorc.choose(check(x), lambda score: "seen" if score.sum() > 1e6 else "never seen", likely="seen") == "seen":
        return sum_up(stream, x)
    return sum_up(stream, double(x))


@dyorc.workflow
async def summed(x: Vector) -> Vector:
    return sum_up(count_up(x, length=60), x)


@pytest.mark.parametrize("max_steps_per_turn", [1, 2, 256])
def test_a_stream_goes_on_for_a_run_that_starts_in_the_next_turn(max_steps_per_turn: int) -> None:
    """After a wrong guess nothing holds the stream until the run that starts again has come to it."""
    world = yielding_world(ALWAYS, max_steps_per_turn=max_steps_per_turn)
    request = world.submit(summed_on_a_guess, [1, 1])
    (checking,) = world.batches(check)
    world.finish(checking)
    while batch := world.next_batch():
        world.finish(batch)
    assert world.engine.speculator.num_squashes == 1
    assert world.result(request).tolist() == [8, 8]
    world.check_nothing_is_left()


def test_a_batch_that_was_given_up_keeps_its_stored_inputs_until_it_ends() -> None:
    """What reads the stream runs again, so its producer starts again, too, while its first batch may still read its inputs."""
    world = yielding_world(max_untaken_parts=4, is_storing=True)
    request = world.submit(summed, [1, 1])
    for _ in range(40):
        world.finish(world.next_batch())
    (reading,) = world.batches(sum_up)
    world.leave(reading.action.replica_id)
    world.join(sum_up)
    world.join(count_up)
    while batch := world.next_batch():
        world.finish(batch)
    assert world.sizes(count_up) == [1, 1], "the stream was not made again"
    assert world.result(request).tolist() == [1 + 60 * 61 / 2] * 2
    world.check_nothing_is_left()
