"""`dyorc.map` is the list of its calls: under any order of events, failures, losses and guesses, two engines that get the same
events, one with mapped calls and one with lists of single calls, send the same batches and give the same answers.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.errors import DyOrcError, ProgramError
from tests.effort import examples
from tests.property.random_workflows import PROGRAMS, Vector, mix, picky, put, send, step
from tests.property.tallies import Tally, comes_across
from tests.unit.engine.driver import World

NUM_ITEMS = 6
Items = Float[np.ndarray, "6 2"]
Many: TypeAlias = Callable[..., list[Any]]

_EVENTS = Tally()


def one_by_one(callee: Any, *items: Iterable[Any], **shared: Any) -> list[Any]:
    """What `dyorc.map` means."""
    return [callee(*row, **shared) for row in zip(*items, strict=True)]


def make_workflow(many: Many) -> dyorc.Workflow:
    """A workflow with rows, calls that depend on calls, tasks with decisions, calls under a guess, failures and effects."""

    @dyorc.workflow
    async def piece(x: Vector) -> Vector:
        first = step(x)
        if await dyorc.when(first, lambda value: value[0] > 8):
            return first
        return step(first)

    @dyorc.workflow
    async def mapped(x: Items) -> Vector:
        rows = [x[at] for at in range(NUM_ITEMS)]
        first = many(step, rows)
        mixed = many(mix, first, rows)
        pieces = many(piece, mixed)
        if await dyorc.when(first[0], lambda value: value[1] > 8):
            last = many(mix, mixed, y=first[1])
        else:
            last = many(picky, many(put, first))
        values = await dyorc.gather(*pieces)
        many(send, values[:2])
        try:
            values += await dyorc.gather(*last)
        except ProgramError:
            values += await dyorc.gather(*many(step, np.array(values)))
        return np.sum(values, axis=0) % 17

    return mapped


def events_and_answers(many: Many, inputs: list[list[list[float]]], seed: int, *, guesses: bool) -> tuple[list[Any], list[Any]]:
    """Returns the batches that an engine sent, and its answers, when random events that a seed draws happen to it."""
    rng = random.Random(seed)
    speculation = SpeculationConfig(enabled=False)
    if guesses:
        speculation = SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)
    world = World(PROGRAMS, EngineConfig(speculation=speculation, max_steps_per_turn=5), is_placing=rng.random() < 0.5)
    if guesses:
        for pool in world.engine.scheduler.pools.values():  # it knows from the start how long programs take
            for size in (1, 2):
                pool.latency.observe(size, 0.1 + 0.02 * size)
            pool.sojourn_ns.add(0.12e9)
            pool.demand.add(0, 0)
    replicas = [(program, world.join(program)) for program in PROGRAMS for _ in range(2)]
    workflow = make_workflow(many)
    world.submit_all(workflow, [np.array(x, np.float32) for x in inputs])
    for _ in range(400):
        if not world.in_flight:
            world.advance(0.1)
            if not world.in_flight:
                break
        batch = rng.choice(list(world.in_flight.values()))
        chance = rng.random()
        if chance < 0.05:
            world.fail(batch)
            _EVENTS.add({"failures": 1})
        elif chance < 0.1:
            at = rng.randrange(len(replicas))
            program, replica_id = replicas[at]
            world.leave(replica_id)
            replicas[at] = program, world.join(program)
            _EVENTS.add({"losses": 1})
        elif chance < 0.15 and world.stored:
            lost = sorted(block for block in world.stored if block[0])
            if lost:
                world.vanish(rng.choice(lost))
                _EVENTS.add({"vanished": 1})
        elif chance < 0.17 and world.engine.tasks.requests:
            world.cancel(rng.choice(sorted(world.engine.tasks.requests)))
        else:
            world.finish(batch)
    world.finish_all()
    world.check_nothing_is_left()
    speculator = world.engine.speculator
    _EVENTS.add({"wrong guesses": speculator.num_squashes, "right guesses": speculator.num_commits})
    sent = [
        (each.program, each.action.reason, [column and np.array(column).tolist() for column in each.columns])
        for each in world.history
    ]
    answers = [world.answers[request_id] for request_id in sorted(world.answers)]
    return sent, [repr(answer) if isinstance(answer, DyOrcError) else answer[0].tolist() for answer in answers]


_NUMBERS = st.lists(st.lists(st.integers(0, 16).map(float), min_size=2, max_size=2), min_size=NUM_ITEMS, max_size=NUM_ITEMS)


@comes_across(_EVENTS, "failures", "losses", "vanished", "wrong guesses", "right guesses", least=5)
def test_mapped_calls_are_their_list() -> None:
    @settings(max_examples=examples(120))
    @given(inputs=st.lists(_NUMBERS, min_size=1, max_size=3), seed=st.integers(0, 2**32), guesses=st.booleans())
    def check(inputs: list[list[list[float]]], seed: int, guesses: bool) -> None:
        mapped = events_and_answers(dyorc.map, inputs, seed, guesses=guesses)
        assert mapped == events_and_answers(one_by_one, inputs, seed, guesses=guesses)

    check()
