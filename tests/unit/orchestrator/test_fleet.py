"""The orchestrator needs no more of replicas than the contract in `fleet.py`: here they are objects in this process."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import OrchestratorConfig
from dyorc.core.arrays import Array
from dyorc.engine.engine import Engine
from dyorc.errors import InternalError, ProgramError, SuspectInputError, TransportError
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.fleet import Fleet
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.exchanges import exchange
from tests.unit.orchestrator.in_memory_fleet import InMemoryFleet
from tests.workflows import arithmetic, streaming

X = np.arange(4, dtype=np.float32)

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def served(
    folder: Path, target: Workflow | Program, inline_limit_bytes: int = 0
) -> AsyncGenerator[tuple[Orchestrator, InMemoryFleet]]:
    """Serves one workflow or program; at its end all memory has to be free."""
    tensors = Tensors(exchange(str(folder), OWN, inline_limit_bytes=inline_limit_bytes))
    repertoire = ModelRegistry.of([target])
    in_memory = InMemoryFleet(repertoire.programs, tensors)
    fleet: Fleet = in_memory
    config = OrchestratorConfig()
    async with Orchestrator(repertoire, config, tensors, StatusBoard(repertoire.programs), fleet) as orchestrator:
        yield orchestrator, in_memory
        arena = tensors.exchange.arena
        await wait_until_async(lambda: arena.num_blocks == 0, "all blocks are free")


@pytest.mark.parametrize("inline_limit_bytes", [0, 1024])
async def test_it_answers(tmp_path: Path, inline_limit_bytes: int) -> None:
    async with served(tmp_path, arithmetic.double_until_large, inline_limit_bytes) as (orchestrator, fleet):
        (y,) = await orchestrator.infer(submission(arithmetic.double_until_large, [X]))
        np.testing.assert_array_equal(y, X * 64)
    assert bool(fleet.num_released) == (inline_limit_bytes == 0), "only what is stored is released"


async def test_it_answers_in_parts(tmp_path: Path) -> None:
    start = np.array([1, 1], np.float32)
    async with served(tmp_path, streaming.count_up) as (orchestrator, _):
        parts = orchestrator.stream(submission(streaming.count_up, [start], (5,)))
        assert [part[0][0] async for together in parts for part in together] == [2, 3, 4, 5, 6]


async def test_a_part_that_cannot_be_read_ends_the_stream_and_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(_: object) -> asyncio.Future[list[Array]]:
        failed: asyncio.Future[list[Array]] = asyncio.get_running_loop().create_future()
        failed.set_exception(TransportError("its holder answers nonsense"))
        return failed

    async with served(tmp_path, streaming.count_up) as (orchestrator, _):
        monkeypatch.setattr(orchestrator.tensors, "is_near", lambda _: False)
        monkeypatch.setattr(orchestrator.tensors, "fetch", fetch)
        with pytest.raises(InternalError, match="part 0 could not be put together: its holder answers nonsense"):
            await anext(orchestrator.stream(submission(streaming.count_up, [np.array([1, 1], np.float32)], (1000,))))
        engine = orchestrator._engine  # pyright: ignore[reportPrivateUsage]
        await wait_until_async(lambda: not engine.tasks.requests, "the engine forgets the request", 5)


async def test_what_a_program_raises_fails_its_request(tmp_path: Path) -> None:
    start = np.array([13, 13], np.float32)
    async with served(tmp_path, streaming.count_up) as (orchestrator, _):
        with pytest.raises(ProgramError, match="13 is not allowed"):
            await anext(orchestrator.stream(submission(streaming.count_up, [start], (5,))))


async def test_a_batch_whose_replica_is_gone_runs_on_the_next(tmp_path: Path) -> None:
    async with served(tmp_path, arithmetic.quadruple) as (orchestrator, fleet):
        fleet.is_holding = True
        waiting = asyncio.create_task(orchestrator.infer(submission(arithmetic.quadruple, [X])))
        await wait_until_async(lambda: fleet.held, "the batch is on its way")
        fleet.is_holding = False
        fleet.replace("double")
        np.testing.assert_array_equal((await waiting)[0], X * 4)


async def test_a_replica_that_hangs_is_given_up(tmp_path: Path) -> None:
    hasty = arithmetic.double.with_options(name="hasty", execution_timeout_s=0.3)
    async with served(tmp_path, hasty) as (orchestrator, fleet):
        fleet.is_holding = True
        waiting = asyncio.create_task(orchestrator.infer(submission(hasty, [X])))
        await wait_until_async(lambda: fleet.given_up, "the engine has lost patience")
        fleet.is_holding = False
        for action in fleet.held[1:]:  # sent to those that came after it
            fleet.dispatch(action)
        np.testing.assert_array_equal((await waiting)[0], X * 2)
    assert fleet.given_up[0] == "hasty-0"


async def break_engine(orchestrator: Orchestrator, workflow: Workflow) -> None:
    """Makes the engine raise once, at a request of its own."""

    class Broken:
        """Stands before the engine, since a compiled one lets nobody replace its methods."""

        def __init__(self, engine: Engine) -> None:
            self._engine = engine

        def __getattr__(self, name: str) -> Any:
            return getattr(self._engine, name)

        def handle(self, *_: object) -> None:
            raise RuntimeError("a bug")

    orchestrator._engine = Broken(orchestrator._engine)  # pyright: ignore
    with pytest.raises(InternalError, match="the scheduler failed"):
        await orchestrator.infer(submission(workflow, [X]))


async def test_a_new_engine_is_told_of_the_replicas(tmp_path: Path) -> None:
    async with served(tmp_path, arithmetic.quadruple) as (orchestrator, _):
        await break_engine(orchestrator, arithmetic.quadruple)
        np.testing.assert_array_equal((await orchestrator.infer(submission(arithmetic.quadruple, [X])))[0], X * 4)


async def test_a_new_engine_refuses_the_inputs_that_the_last_one_refused(tmp_path: Path) -> None:
    bad = X + 1
    async with served(tmp_path, arithmetic.quadruple) as (orchestrator, fleet):
        fleet.is_holding = True
        waiting = asyncio.create_task(orchestrator.infer(submission(arithmetic.quadruple, [bad])))
        for number in (1, 2):
            await wait_until_async(lambda number=number: len(fleet.held) == number, "the batch is on its way")
            fleet.replace("double")
        with pytest.raises(SuspectInputError, match="nor are equal requests"):
            await waiting
        fleet.is_holding = False
        await break_engine(orchestrator, arithmetic.quadruple)
        with pytest.raises(SuspectInputError, match="an equal request"):
            await orchestrator.infer(submission(arithmetic.quadruple, [bad]))
