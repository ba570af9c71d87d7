"""Suspects of programs whose calls run side by side: they run alone on their replica all the same."""

from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.events import ReplicaLeft
from dyorc.errors import SuspectInputError
from tests.unit.engine.driver import World

Number = Int[np.ndarray, ""]


@dyorc.program(batched=False, max_ongoing=3)
def numbers(x: Number) -> Iterator[Number]:
    for number in range(4):
        yield x + number


@dyorc.workflow
async def stream(x: Number) -> AsyncIterator[Number]:
    async for part in numbers(x):
        yield part


BAD = 13


def world_with(num_replicas: int = 1) -> World:
    world = World([numbers], EngineConfig(hold=False, max_untaken_parts=1, max_suspect_wait_s=5.0))
    for _ in range(num_replicas):
        world.join(numbers)
    return world


def crash(world: World, replica_id: str) -> None:
    world.forget(replica_id)
    world.tell(ReplicaLeft(replica_id, "signal 11", is_crash=True))
    world.join(numbers)


def check_alone(world: World) -> bool:
    """Checks that no suspect has company on its replica. Returns whether one runs."""
    batches = list(world.in_flight.values())
    suspects = [batch for batch in batches if batch.action.is_suspect]
    for suspect in suspects:
        assert sum(batch.action.replica_id == suspect.action.replica_id for batch in batches) == 1
    return bool(suspects)


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_what_ran_beside_it_is_answered_and_only_the_bad_one_is_refused(num_replicas: int) -> None:
    world = world_with(num_replicas)
    good = [world.submit(stream, np.array(at)) for at in range(3 * num_replicas - 1)]
    bad = world.submit(stream, np.array(BAD))
    seen = 0
    for _ in range(500):
        seen += check_alone(world)
        killing = [batch for batch in world.in_flight.values() if batch.action.operands[0][0].data == BAD]
        if killing:
            crash(world, killing[0].action.replica_id)
        elif world.in_flight:
            world.finish()
        elif world.engine.tasks.requests:
            world.advance(1.0)
        else:
            break
        if len(good) < 12:
            good.append(world.submit(stream, np.array(100)))  # others keep coming
    assert seen
    with pytest.raises(SuspectInputError):
        world.result(bad)
    for request in good:
        assert len(world.part_values(request)) == 4
    world.check_nothing_is_left()


def test_no_other_call_joins_a_suspect() -> None:
    world = world_with()
    suspect = world.submit(stream, np.array(1))
    crash(world, world.oldest().action.replica_id)
    first = world.oldest()
    assert first.action.is_suspect
    others = [world.submit(stream, np.array(at)) for at in range(2)]
    assert len(world.in_flight) == 1, "others joined a suspect"
    while suspect not in world.answers:
        world.finish(first)
    assert len(world.in_flight) == 2
    world.finish_all()
    assert all(len(world.part_values(request)) == 4 for request in others)


def with_company(world: World) -> tuple[int, list[int]]:
    """Returns a suspect that waits, and three streams that run meanwhile."""
    suspect = world.submit(stream, np.array(1))
    replica = world.oldest().action.replica_id
    world.forget(replica)
    world.tell(ReplicaLeft(replica, "signal 11", is_crash=True))
    others = [world.submit(stream, np.array(100 + at)) for at in range(3)]
    world.join(numbers)
    return suspect, others


def test_a_suspect_that_is_due_gets_the_replica_for_itself() -> None:
    world = world_with()
    suspect, others = with_company(world)
    assert len(world.in_flight) == 3
    assert not check_alone(world), "it waits while others do"
    world.advance(6.0)
    late = world.submit(stream, np.array(7))
    one = world.oldest()
    while one.action.batch_id in world.in_flight:
        world.finish(one)
    assert len(world.in_flight) == 2, "the place of the one that ended is kept free"
    world.finish_all()
    assert check_alone(world) or suspect in world.answers
    world.finish_all()
    for request in (suspect, late, *others):
        assert len(world.part_values(request)) == 4
    world.check_nothing_is_left()


def test_a_suspect_that_is_cancelled_keeps_nothing_free() -> None:
    world = world_with()
    suspect, _others = with_company(world)
    world.advance(6.0)
    one = world.oldest()
    while one.action.batch_id in world.in_flight:
        world.finish(one)
    late = world.submit(stream, np.array(7))
    assert len(world.in_flight) == 2
    world.cancel(suspect)
    assert len(world.in_flight) == 3
    world.finish_all()
    assert len(world.part_values(late)) == 4
