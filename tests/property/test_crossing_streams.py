"""Requests that hold the few places of programs that the others need: whatever comes first, all of them come to their end."""

import random
from collections.abc import AsyncIterator, Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.engine import Engine
from tests.effort import examples
from tests.property.tallies import Tally, comes_across
from tests.unit.engine.driver import World

Vector = Float[np.ndarray, "1"]


@dyorc.program(batched=False, execution_timeout_s=1e6)
def climb(x: Vector) -> Iterator[Vector]:
    for number in range(int(x[0])):
        yield x + number


@dyorc.program(batched=False, execution_timeout_s=1e6)
def fall(x: Vector) -> Iterator[Vector]:
    for number in range(int(x[0])):
        yield x - number


@dyorc.program(batched=False, max_ongoing=1, execution_timeout_s=1e6)
async def doubles(parts: AsyncIterator[Vector]) -> AsyncIterator[Vector]:
    async for part in parts:
        yield 2 * part


@dyorc.program(batched=False, max_ongoing=1, execution_timeout_s=1e6)
async def steps(parts: AsyncIterator[Vector]) -> AsyncIterator[Vector]:
    last = np.zeros(1, np.float32)
    async for part in parts:
        yield part - last
        last = part


@dyorc.program(batched=False, max_ongoing=1, execution_timeout_s=1e6)
async def total(parts: AsyncIterator[Vector], others: AsyncIterator[Vector]) -> Vector:
    result = np.zeros(1, np.float32)
    async for part in parts:
        result = result + part
    async for part in others:
        result = result - part
    return result


PROGRAMS = [climb, fall, doubles, steps, total]
SOURCES = [climb, fall]
FILTERS = [doubles, steps]


def _stream(x: Vector, plan: int) -> dyorc.Stream:
    plan, source = divmod(plan, 2)
    stream = SOURCES[source](x)
    for _ in range(2):
        plan, way = divmod(plan, 3)
        if way:
            stream = FILTERS[way - 1](stream)
    return stream


@dyorc.workflow(programs=PROGRAMS)
async def in_turns(x: Vector, plan: int) -> AsyncIterator[Vector]:
    """Reads two streams in turns."""
    readers = [aiter(_stream(x, plan % 18)), aiter(_stream(x, plan // 18))]
    while readers:
        for reader in list(readers):
            try:
                yield await anext(reader)
            except StopAsyncIteration:
                readers.remove(reader)


@dyorc.workflow(programs=PROGRAMS)
async def between(x: Vector, plan: int) -> AsyncIterator[Vector]:
    """Adds up two streams in the middle of a third."""
    number = 0
    async for part in _stream(x, plan % 18):
        yield part
        number += 1
        if number == 1:
            yield total(_stream(x, plan // 18 % 18), _stream(x, plan // 324))


def _values(x: int, plan: int) -> list[int]:
    plan, source = divmod(plan, 2)
    values = [x - number if source else x + number for number in range(x)]
    for _ in range(2):
        plan, way = divmod(plan, 3)
        if way == 1:
            values = [2 * value for value in values]
        elif way == 2:
            values = [value - last for value, last in zip(values, [0, *values], strict=False)]
    return values


def _expected(workflow: dyorc.Workflow, x: int, plan: int) -> list[int]:
    first, second = _values(x, plan % 18), _values(x, plan // 18 % 18)
    if workflow is in_turns:
        return [value for pair in zip(first, second, strict=True) for value in pair]
    return [*first[:1], *([sum(second) - sum(_values(x, plan // 324))] if first else []), *first[1:]]


_TALLY = Tally()


@comes_across(_TALLY, "lent")
@settings(max_examples=examples(250))
@given(
    asked=st.lists(
        st.tuples(st.sampled_from([in_turns, between]), st.integers(0, 6), st.integers(0, 18**3 - 1), st.integers(0, 2)),
        min_size=2, max_size=4,
    ),
    seed=st.integers(0, 2**32),
    room=st.sampled_from([1, 2, 3]),
    world_of=st.sampled_from([(0.0, True), (0.0, False), (0.02, False)]),
)  # fmt: skip
def test_all_requests_come_to_their_end(
    asked: list[tuple[dyorc.Workflow, int, int, int]], seed: int, room: int, world_of: tuple[float, bool]
) -> None:
    chance = random.Random(seed)
    trouble, is_storing = world_of
    config = EngineConfig(
        max_attempts=10**6, max_deaths=10**6, request_timeout_s=1e8, speculation=SpeculationConfig(enabled=False),
        max_untaken_parts=room, max_suspect_wait_s=0.01, hold=False,
    )  # fmt: skip
    world = World(PROGRAMS, config, is_storing=is_storing)
    for program in PROGRAMS:
        world.join(program)
    requests: list[int] = []
    waiting = list(asked)
    num_lent = 0
    for _ in range(4000):
        ready = [batch for batch in world.in_flight.values() if world.can_go_on(batch)]
        if waiting and (not ready or chance.random() < 0.2):
            workflow, x, plan, priority = waiting.pop(0)
            plan %= 18**2 if workflow is in_turns else 18**3
            requests.append(world.submit(workflow, [x], plan=plan, priority=priority, tenant=chance.choice("ab")))
        elif chance.random() < trouble:
            replica = chance.choice(list(world.engine.scheduler.replicas.values()))
            world.leave(replica.replica_id)
            world.join(replica.pool.program)
        elif ready:
            world.finish(chance.choice(ready))
        elif world.engine.tasks.requests:
            assert world.wake_ns is not None, "requests wait for nothing"
            assert world.wake_ns < 1e16, "requests wait for their deadlines"
            world.advance((world.wake_ns - world.now_ns) / 1e9 + 1e-6)
        else:
            break
        num_lent += _num_lent(world.engine)
    for request, (workflow, x, plan, _) in zip(requests, asked, strict=True):
        plan %= 18**2 if workflow is in_turns else 18**3
        assert world.answers[request] == []
        assert [int(part[0]) for part in world.part_values(request)] == _expected(workflow, x, plan)
    world.check_nothing_is_left()
    _TALLY.add({"lent": num_lent})


def _num_lent(engine: Engine) -> int:
    return sum(batch.ongoing.num_lent for batch in engine.scheduler.batches.values() if batch.ongoing is not None)
