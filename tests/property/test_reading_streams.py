"""Workflows that read streams: under any order of events, guesses, losses and slow consumers, they do what plain Python does."""

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.effort import examples
from tests.property.tallies import Tally, comes_across
from tests.unit.engine.driver import World

Vector = Float[np.ndarray, "1"]
Vectors = Float[np.ndarray, "batch 1"]

# Programs; each has a plain twin, below.


@dyorc.program(max_batch_size=3, execution_timeout_s=1e6)
def step(x: Vectors) -> Vectors:
    return (3 * x + 1) % 17


@dyorc.program(batched=False, max_ongoing=4, execution_timeout_s=1e6)
def climb(x: Vector) -> Iterator[Vector]:
    """Yields up to 6 numbers; fails before a 13."""
    for number in range(int(x[0]) % 7):
        value = (x + number) % 17
        if value[0] == 13:
            raise ValueError("unlucky")
        yield value


@dyorc.program(batched=False, max_ongoing=4, execution_timeout_s=1e6)
async def sums(parts: AsyncIterator[Vector]) -> AsyncIterator[Vector]:
    total = np.zeros(1, np.float32)
    async for part in parts:
        total = (total + part) % 17
        yield total


@dyorc.program(batched=False, max_ongoing=4, execution_timeout_s=1e6)
async def count(parts: AsyncIterator[Vector], x: Vector) -> Vector:
    async for part in parts:
        x = (x + 2 * part) % 17
    return x


PROGRAMS = [step, climb, sums, count]


@dyorc.workflow
async def below(x: Vector, limit: int) -> AsyncIterator[Vector]:
    number = 0
    async for part in climb(x):
        if number == limit:
            break
        number += 1
        if await dyorc.when(part, lambda value: value[0] % 2 == 0, likely=True):
            yield step(part)
        else:
            yield part


@dyorc.workflow
async def passed(parts: AsyncIterator[Vector], x: Vector) -> Vector:
    async for part in parts:
        x = step(part)
    return x


@dyorc.workflow
async def reading(x: Vector, plan: int) -> AsyncIterator[Vector]:
    """Reads in different ways, chosen by the digits of a plan."""
    for _ in range(3):
        plan, way = divmod(plan, 8)
        limit = plan % 4
        stream = climb(x) if way % 2 else below(x, limit)
        try:
            if way < 2:
                async for part in stream:
                    yield part
            elif way < 4:
                number = 0
                async for part in sums(stream):
                    x = part
                    number += 1
                    if number > limit:
                        break
                yield x
            elif way < 6:
                total = count(stream, x)
                last = passed(stream, x)
                values = await dyorc.collect(stream)
                yield total
                if values:
                    x = last
            elif await dyorc.when(count(stream, x), lambda value: value[0] > 8, likely=True):
                async for part in stream:
                    x = step(part)
                yield x
            else:
                yield step(x)
        except dyorc.ProgramError:
            yield x
        x = step(x)


@dataclass
class Plain:
    """The same, in plain Python."""

    parts: list[int]

    @staticmethod
    def climb(x: int) -> Iterator[int]:
        for number in range(x % 7):
            if (x + number) % 17 == 13:
                raise ValueError
            yield (x + number) % 17

    def below(self, x: int, limit: int) -> Iterator[int]:
        for number, part in enumerate(self.climb(x)):
            if number == limit:
                return
            yield self.step(part) if part % 2 == 0 else part

    @staticmethod
    def step(x: int) -> int:
        return (3 * x + 1) % 17

    def run(self, x: int, plan: int) -> None:
        for _ in range(3):
            plan, way = divmod(plan, 8)
            limit = plan % 4

            def stream(x: int = x, way: int = way, limit: int = limit) -> Iterator[int]:
                return self.climb(x) if way % 2 else self.below(x, limit)

            try:
                if way < 2:
                    for part in stream():
                        self.parts.append(part)
                elif way < 4:
                    total = 0
                    for number, part in enumerate(stream()):
                        x = total = (total + part) % 17
                        if number >= limit:
                            break
                    self.parts.append(x)
                elif way < 6:
                    values = list(stream())
                    self.parts.append((x + 2 * sum(values)) % 17)
                    if values:
                        x = self.step(values[-1])
                elif (x + 2 * sum(values := list(stream()))) % 17 > 8:
                    x = self.step(values[-1]) if values else x
                    self.parts.append(x)
                else:
                    self.parts.append(self.step(x))
            except ValueError:
                self.parts.append(x)
            x = self.step(x)


AGGRESSIVE = SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)
OFF = SpeculationConfig(enabled=False)
_TALLY = Tally()


class Disorder:
    """A world in which everything happens in any order, and replicas come and go."""

    def __init__(self, seed: int, trouble: float, room: int, speculation: SpeculationConfig, **world: Any) -> None:
        self.random = random.Random(seed)
        self.trouble = trouble
        config = EngineConfig(
            max_attempts=10**6, max_deaths=10**6, request_timeout_s=1e8, max_determinism_checks=10**6, speculation=speculation,
            max_untaken_parts=room, max_steps_per_turn=self.random.choice([1, 3, 256]), max_suspect_wait_s=0.01, hold=False,
        )  # fmt: skip
        self.world = World(PROGRAMS, config, is_fetching=False, is_taking=False, **world)
        self.seen = Counter[str]()
        for program in PROGRAMS:
            for _ in range(self.random.randrange(1, 3)):
                self.world.join(program)

    def run(self) -> None:
        """Plays events until nothing happens."""
        for _ in range(8000):
            if not self.happen():
                return
        raise AssertionError("there is still something to do")

    def happen(self) -> bool:
        """Plays one event; returns False if there is none."""
        world = self.world
        self.seen["restorations"] += sum(len(each.restoring) for each in world.engine.tasks.requests.values())
        self.seen["cancelled"] += sum(call.is_cancelled for call in world.running.values())
        if self.random.random() < self.trouble:
            replica = self.random.choice(list(world.engine.scheduler.replicas.values()))
            self.seen["lost streams"] += any(call.num_parts for call in world.running.values())
            world.leave(replica.replica_id)
            world.join(replica.pool.program)
        ready = [batch for batch in world.in_flight.values() if world.can_go_on(batch)]
        takable = world.takable()
        if takable and (not ready or self.random.random() < 0.3):
            world.take_part(self.random.choice(takable))
        elif world.fetches and (not ready or self.random.random() < 0.5):
            world.fetch()
        elif ready:
            world.finish(self.random.choice(ready))
        elif world.engine.tasks.requests:
            assert world.wake_ns is not None, "requests wait for nothing"
            assert world.wake_ns < 1e16, "requests wait for their deadlines"
            world.advance((world.wake_ns - world.now_ns) / 1e9 + 1e-6)
        else:
            return False
        return True


@comes_across(_TALLY, "restorations", "cancelled", "lost streams")
@settings(max_examples=examples(250))
@given(
    asked=st.lists(st.tuples(st.integers(0, 16), st.integers(0, 8**4 - 1)), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    trouble=st.sampled_from([0.0, 0.02, 0.1]),
    room=st.sampled_from([1, 2, 3, 16]),
    speculation=st.sampled_from([AGGRESSIVE, OFF]),
    world=st.sampled_from([{}, {"is_storing": True}, {"is_placing": True}]),
)
def test_workflows_that_read_streams_do_what_plain_python_does(
    asked: list[tuple[int, int]], seed: int, trouble: float, room: int, speculation: SpeculationConfig, world: dict[str, bool]
) -> None:
    disorder = Disorder(seed, trouble, room, speculation, **world)
    requests = [disorder.world.submit(reading, [x], plan=plan) for x, plan in asked]
    disorder.run()
    for request, (x, plan) in zip(requests, asked, strict=True):
        plain = Plain([])
        plain.run(x, plan)
        assert disorder.world.answers[request] == []
        assert [int(part[0]) for part in disorder.world.part_values(request)] == plain.parts
    disorder.world.check_nothing_is_left()
    _TALLY.add(disorder.seen)
