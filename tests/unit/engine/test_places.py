"""Requests that hold places of programs which the others need."""

from collections.abc import AsyncIterator, Iterator

import numpy as np
from jaxtyping import Int

import dyorc
from dyorc.config import EngineConfig
from tests.unit.engine.driver import World

Number = Int[np.ndarray, ""]
NUM_PARTS = 6


@dyorc.program(batched=False)
def rises(x: Number) -> Iterator[Number]:
    for number in range(NUM_PARTS):
        yield x + number


@dyorc.program(batched=False)
def falls(x: Number) -> Iterator[Number]:
    for number in range(NUM_PARTS):
        yield x - number


@dyorc.program(batched=False, max_ongoing=1)
async def doubles(parts: AsyncIterator[Number]) -> AsyncIterator[Number]:
    async for part in parts:
        yield 2 * part


@dyorc.program(batched=False, max_ongoing=1)
async def halves(parts: AsyncIterator[Number]) -> AsyncIterator[Number]:
    async for part in parts:
        yield part // 2


PROGRAMS = [rises, falls, doubles, halves]


@dyorc.workflow(programs=PROGRAMS)
async def in_turns(x: Number, up_first: bool) -> AsyncIterator[Number]:
    """Needs both streams: the second only once it has a part of the first."""
    programs = (rises, falls) if up_first else (falls, rises)
    first = aiter(programs[0](x))
    start = await anext(first)
    second = aiter(programs[1](start))
    yield start
    for _ in range(NUM_PARTS - 1):
        yield await anext(second)
        yield await anext(first)
    yield await anext(second)


@dyorc.workflow(programs=PROGRAMS)
async def chained(x: Number, halves_last: bool) -> AsyncIterator[Number]:
    stream = halves(doubles(rises(x))) if halves_last else doubles(halves(rises(x)))
    async for part in stream:
        yield part


def world_of(max_untaken_parts: int = 1, but: dyorc.Program | None = None) -> World:
    world = World(PROGRAMS, EngineConfig(max_untaken_parts=max_untaken_parts, hold=False, max_suspect_wait_s=0.01))
    for program in PROGRAMS:
        if program is not but:
            world.join(program)
    return world


def test_two_requests_that_hold_what_the_other_needs_come_to_their_end() -> None:
    world = world_of()
    requests = [world.submit(in_turns, np.array(10), up_first=up_first) for up_first in (True, False)]
    assert [world.batches(program)[0].action.program for program in (rises, falls)] == [rises, falls]
    world.finish_all()
    up, down = range(10, 10 + NUM_PARTS), range(10, 10 - NUM_PARTS, -1)
    assert [int(value) for value in world.part_values(requests[0])] == [v for pair in zip(up, down, strict=True) for v in pair]
    assert [int(value) for value in world.part_values(requests[1])] == [v for pair in zip(down, up, strict=True) for v in pair]
    world.check_nothing_is_left()


def test_no_more_is_sent_than_was_read_while_another_request_can_go_on() -> None:
    """The place that the first waits for is held by a stream that is read: that ends by itself."""
    world = world_of()
    world.submit(alone, np.array(0))
    (slow,) = world.batches(falls)
    world.submit(in_turns, np.array(10), up_first=True)
    (rising,) = world.batches(rises)
    for _ in range(3):
        if world.can_go_on(rising):
            world.finish(rising)
    assert world.running[rising.action.batch_id].num_parts == 1
    assert world.can_go_on(slow)
    world.finish_all()
    world.check_nothing_is_left()


@dyorc.workflow(programs=PROGRAMS)
async def alone(x: Number) -> AsyncIterator[Number]:
    async for part in falls(x):
        yield part


def test_a_call_takes_no_place_before_the_one_whose_stream_it_reads() -> None:
    world = world_of(but=doubles)
    world.join(rises)
    first = world.submit(chained, np.array(0), halves_last=True)
    assert not world.batches(halves)
    second = world.submit(chained, np.array(0), halves_last=False)
    assert len(world.batches(halves)) == 1  # else the two would wait for each other
    world.finish_all()
    world.join(doubles)
    world.finish_all()
    for request in (first, second):
        assert len(world.part_values(request)) == NUM_PARTS
    world.check_nothing_is_left()


def test_one_that_can_never_start_lets_its_reader_go_on() -> None:
    """Its error reaches the reader, and so the request."""
    world = world_of(but=doubles)
    request = world.submit(chained, np.array(0), halves_last=True)
    for _ in range(10):
        world.fail_load(doubles)
    world.finish_all()
    assert isinstance(world.answers[request], dyorc.DyOrcError)
    world.check_nothing_is_left()


@dyorc.workflow(programs=PROGRAMS)
async def twice(x: Number) -> AsyncIterator[Number]:
    async for part in doubles(doubles(rises(x))):
        yield part


def test_after_a_loss_a_reader_gives_its_place_to_the_one_that_it_reads() -> None:
    """Both run; the first is lost, and the place that is left is its reader's."""
    world = world_of(max_untaken_parts=8)
    world.join(doubles)
    request = world.submit(twice, np.array(1))
    first, _ = world.batches(doubles)
    world.leave(first.action.replica_id)
    for _ in range(100):
        world.finish_all()
        if world.answers.get(request) is not None:
            break
        world.advance(0.02)
    assert [int(value) for value in world.part_values(request)] == [4 * (1 + at) for at in range(NUM_PARTS)]
    world.check_nothing_is_left()


@dyorc.workflow(programs=PROGRAMS)
async def second_later(x: Number) -> AsyncIterator[Number]:
    """Has both streams from the start, and reads the second only after two parts of the first."""
    first, second = aiter(rises(x)), aiter(rises(x))
    for _ in range(2):
        yield await anext(first)
    for stream in (second, first):
        async for part in stream:
            yield part


def test_a_queued_call_gets_a_place_also_if_it_is_read_only_later() -> None:
    """Nothing waited for it when its request was first asked what it waits for: its client was slow to read."""
    world = world_of()
    world.is_taking = False
    request = world.submit(second_later, np.array(0))
    world.finish_all()
    while world.next_part(request) is not None:
        world.take_part(request)
        world.finish_all()
    assert [int(value) for value in world.part_values(request)] == [0, 1, *range(NUM_PARTS), *range(2, NUM_PARTS)]
    world.check_nothing_is_left()
