"""Workflows that call themselves: as deep as their clients choose, so depth must not cost others anything."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.tasks import task_endings as withdrawal  # ALIAS
from dyorc.errors import DeadlineError, WorkflowLimitError
from tests.unit.engine.driver import World


@dyorc.program(max_batch_size=32)
def add_one(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x + 1


@dyorc.workflow(programs=[add_one])
async def down(x: Float[np.ndarray, ""], n: int) -> Float[np.ndarray, ""]:
    return x if n == 0 else down(add_one(x), n=n - 1)


@dyorc.workflow(programs=[add_one])
async def for_ever(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    return for_ever(add_one(x))


@dyorc.workflow
async def once(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    return add_one(x)


@pytest.mark.pure
def test_a_return_looks_only_at_its_own_task(monkeypatch: pytest.MonkeyPatch) -> None:
    num_seen = 0
    walk = withdrawal.closure

    def counting(*arguments: Any) -> Iterator[Any]:
        nonlocal num_seen
        for entry in walk(*arguments):
            num_seen += 1
            yield entry

    monkeypatch.setattr(withdrawal, "closure", counting)
    world = World([add_one])
    world.join(add_one)
    request = world.submit(down, 0.0, 100)
    while world.in_flight:
        world.finish()
    assert world.answers[request] == [100.0]
    assert 100 <= num_seen <= 400


def test_a_deep_recursion_goes_on_over_several_turns() -> None:
    world = World([add_one], EngineConfig(max_steps_per_turn=16))
    world.join(add_one)
    started_ns = world.now_ns
    deep = world.submit(down, 0.0, 100)
    assert world.now_ns - started_ns >= 5_000_000, "it was done in one turn"
    while world.in_flight:
        world.finish()
    assert world.answers[deep] == [100.0]


def test_an_endless_recursion_ends_at_its_deadline_and_delays_nobody() -> None:
    world = World([add_one], EngineConfig(max_steps_per_turn=4, max_calls_per_request=10**9))
    world.join(add_one)
    endless = world.arrival(for_ever, 0.0, deadline_s=0.05)
    normal = world.arrival(once, 1.0)
    world.tell(endless, normal)
    assert isinstance(world.answers[endless.request_id], DeadlineError)
    assert world.history[0].size == 2, "the other request waited for turns of the endless one"
    while world.in_flight:
        world.finish()
    assert world.answers[normal.request_id] == [2.0]


def test_an_endless_recursion_ends_at_the_limit_of_calls() -> None:
    world = World([add_one], EngineConfig(max_calls_per_request=1000))
    world.join(add_one)
    endless = world.submit(for_ever, 0.0)
    assert isinstance(world.answers[endless], WorkflowLimitError)
    while world.in_flight:
        world.finish()


def test_a_deep_recursion_runs_without_a_server() -> None:
    assert dyorc.run(down, np.float32(0), 600) == 600
