"""Async generators that a workflow uses are closed with its run, and the event loop's own are left to it."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.config import OrchestratorConfig
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.fleet import Fleets
from dyorc.orchestrator.generator_hooks import GeneratorHooks
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.exchanges import exchange
from tests.unit.orchestrator.in_memory_fleet import InMemoryFleet

pytestmark = pytest.mark.anyio

Vector = Float[np.ndarray, "n"]
X = np.arange(4, dtype=np.float32)
log: list[str] = []


@dyorc.program(batched=False)
def copy(x: Vector) -> Vector:
    return x.copy()


async def parts(x: Any) -> AsyncIterator[Any]:
    try:
        for _ in range(3):
            yield await copy(x)
    finally:
        log.append("parts closed")


async def stubborn(x: Any) -> AsyncIterator[Any]:
    """Uses another generator, and awaits while it is closed."""
    ref = copy(x)
    try:
        async for part in parts(x):
            yield part
    finally:
        log.append("stubborn closing")
        await ref


@dyorc.workflow(programs=[copy])
async def reads(x: Vector) -> Vector:
    last = x
    async for part in parts(x):
        last = part
    return last


@dyorc.workflow(programs=[copy])
async def reads_stubborn(x: Vector) -> Vector:
    last = x
    async for part in stubborn(x):
        last = part
    return last


@dyorc.workflow(programs=[copy])
async def streams(x: Vector) -> AsyncIterator[Vector]:
    async for part in stubborn(x):
        yield part


@dyorc.workflow(programs=[copy])
async def abandons(x: Vector) -> Vector:
    async for part in stubborn(x):
        log.append("left")
        return copy(part)
    return x


WORKFLOWS = [reads, reads_stubborn, streams, abandons]


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns what Python complains of that no code could catch."""
    log.clear()
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    return complaints


@contextlib.asynccontextmanager
async def served(folder: Path, complaints: list[Any]) -> AsyncGenerator[tuple[Orchestrator, InMemoryFleet]]:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    tensors = Tensors(exchange(str(folder), OWN, inline_limit_bytes=0))
    fleet = InMemoryFleet([copy], tensors)
    registry = ModelRegistry.of(WORKFLOWS)
    status = StatusBoard(registry.programs)
    async with Orchestrator(registry, OrchestratorConfig(), tensors, status, Fleets([fleet])) as orchestrator:
        yield orchestrator, fleet


async def turns_of_loop() -> None:
    """Lets tasks run that a finalizer may have begun."""
    gc.collect()
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("workflow", "closed"),
    [(reads, ["parts closed"]), (reads_stubborn, ["parts closed", "stubborn closing"])],
    ids=["one", "one in another that awaits"],
)
async def test_a_request_that_is_cancelled_closes_its_generators_and_nobody_complains(
    tmp_path: Path, complaints: list[Any], workflow: dyorc.Workflow, closed: list[str]
) -> None:
    async with served(tmp_path, complaints) as (orchestrator, fleet):
        fleet.is_holding = True
        request = asyncio.ensure_future(orchestrator.infer(submission(workflow, [X])))
        await wait_until_async(lambda: bool(fleet.held), "the workflow awaits")
        request.cancel()
        await wait_until_async(lambda: bool(log), "the generators are closed")
        assert log == closed
        await turns_of_loop()
    assert complaints == []


async def test_a_generator_that_is_left_is_closed_at_once_and_nobody_complains(tmp_path: Path, complaints: list[Any]) -> None:
    async with served(tmp_path, complaints) as (orchestrator, _):
        (y,) = await orchestrator.infer(submission(abandons, [X]))
        np.testing.assert_array_equal(y, X)
        await turns_of_loop()
    assert log[:3] == ["left", "parts closed", "stubborn closing"]  # and again, for the check that it is deterministic
    assert complaints == []


@pytest.mark.parametrize("workflow", [reads, reads_stubborn, abandons], ids=lambda workflow: workflow.name)
async def test_a_run_without_a_server_closes_them_too(complaints: list[Any], workflow: dyorc.Workflow) -> None:
    """Here a loop runs in the caller's thread, as in a notebook."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    hooks = sys.get_asyncgen_hooks()
    np.testing.assert_array_equal(dyorc.run(workflow, X), X)
    assert sys.get_asyncgen_hooks() == hooks
    await turns_of_loop()
    assert complaints == []


async def test_a_stream_that_is_left_closes_the_generators_below_it(complaints: list[Any]) -> None:
    running = dyorc.run(streams, X)
    next(running)
    running.close()
    assert log == ["parts closed", "stubborn closing"]
    await turns_of_loop()
    assert complaints == []


async def test_generators_of_the_loop_stay_its_own() -> None:
    """It knows them, and closes them with a task, so they may await while they are closed."""
    ended = asyncio.Event()

    async def own() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            ended.set()

    async def begun() -> AsyncIterator[int]:
        generator = own()
        await anext(generator)
        assert generator in asyncio.get_running_loop()._asyncgens  # type: ignore[attr-defined]
        return generator

    before = sys.get_asyncgen_hooks()
    with GeneratorHooks() as hooks:
        later = await begun()
        del later
        await ended.wait()
        hooks.is_in_turn = True
        for _ in range(3000):  # more than are remembered, though all have ended
            await drained(parts_of_three)
        assert len(hooks._runs) < 1500  # pyright: ignore[reportPrivateUsage]
        hooks.is_in_turn = False
        ended.clear()
        later = await begun()  # perhaps in the place of one of a run
        del later
        await ended.wait()
    assert sys.get_asyncgen_hooks() == before


async def parts_of_three() -> AsyncIterator[int]:
    for number in range(3):
        yield number


async def drained(generator: Callable[[], AsyncIterator[int]]) -> None:
    async for _ in generator():
        pass
