"""A slow step is logged with the workflow whose code it is, and with the program whose cost is computed in it."""

from typing import Any

import numpy as np
from jaxtyping import Float
from structlog.testing import capture_logs

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.engine_context import Host
from dyorc.orchestrator.step_watch import StepWatch
from tests.deadlines import wait_until
from tests.unit.engine.driver import World

NEVER_S = 60.0
current: list[StepWatch] = []


def until_seen() -> None:
    wait_until(lambda: current[0]._place, "the watch has seen it")  # pyright: ignore[reportPrivateUsage]


def slow_cost(**_: Any) -> float:
    until_seen()
    return 1.0


@dyorc.program(max_batch_size=8, cost=lambda x: slow_cost(x=x), max_batch_cost=8)
def costly(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x + 1


@dyorc.workflow
async def inner(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    until_seen()
    return x


@dyorc.workflow
async def outer(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    return inner(x)


@dyorc.workflow
async def asks(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    return costly(x)


@dyorc.workflow
async def asks_later(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    return costly(costly(x))


def slow_steps(workflow: dyorc.Workflow) -> list[dict[str, Any]]:
    with StepWatch(warn_after_s=0.02, limit_s=NEVER_S) as watch, capture_logs() as logs:
        current[:] = [watch]
        world = World([costly], EngineConfig(max_determinism_checks=0), host=Host(step_monitor=watch))
        world.join(costly)
        world.submit(workflow, 0.0)
        while world.in_flight:
            world.finish()
    return [dict(entry) for entry in logs if entry["event"] == "slow_step"]


def test_a_nested_workflow_is_named_and_not_its_caller() -> None:
    (slow,) = slow_steps(outer)
    assert slow["workflow"] == "inner"
    assert "program" not in slow


def test_a_cost_that_is_computed_within_a_step_names_its_program() -> None:
    (slow,) = slow_steps(asks)
    assert (slow["workflow"], slow["program"]) == ("asks", "costly")


def test_so_does_one_that_is_computed_when_an_input_has_come() -> None:
    assert {(slow["workflow"], slow["program"]) for slow in slow_steps(asks_later)} == {("asks_later", "costly")}
