"""Several fleets as one."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.config import OrchestratorConfig
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.fleet import Fleets
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.exchanges import exchange
from tests.unit.orchestrator.in_memory_fleet import InMemoryFleet
from tests.workflows.arithmetic import add_up, double

pytestmark = pytest.mark.anyio

X = np.arange(4, dtype=np.float32)


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[tuple[Orchestrator, InMemoryFleet, InMemoryFleet]]:
    """Serves two programs, each in a fleet of its own."""
    tensors = Tensors(exchange(str(folder), OWN, inline_limit_bytes=0))
    first, second = InMemoryFleet([double], tensors), InMemoryFleet([add_up], tensors)
    repertoire = ModelRegistry.of([double, add_up])
    fleets = Fleets([first, second])
    status = StatusBoard(repertoire.programs)
    async with Orchestrator(repertoire, OrchestratorConfig(), tensors, status, fleets) as orchestrator:
        yield orchestrator, first, second


async def ask(orchestrator: Orchestrator) -> None:
    """Calls each program once."""
    (y,) = await orchestrator.infer(submission(double, [X]))
    np.testing.assert_array_equal(y, 2 * X)
    total, _ = await orchestrator.infer(submission(add_up, [X]))
    assert total == X.sum()


async def test_each_batch_goes_to_the_fleet_of_its_replica_and_releases_to_all(tmp_path: Path) -> None:
    async with served(tmp_path) as (orchestrator, first, second):
        await ask(orchestrator)
        await wait_until_async(lambda: orchestrator.tensors.exchange.arena.num_blocks == 0, "all blocks are free")
        assert first.num_released == second.num_released > 0


async def test_a_replica_that_was_replaced_is_found(tmp_path: Path) -> None:
    async with served(tmp_path) as (orchestrator, first, second):
        await ask(orchestrator)
        first.replace("double")
        second.replace("add_up")
        await ask(orchestrator)


async def test_a_replica_that_hangs_is_given_up_by_its_own_fleet(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, first, second):
        fleets = Fleets([first, second])
        async with fleets.running(lambda event: None, lambda: None):
            fleets.give_up("add_up-0", "it hangs")
            fleets.give_up("nobody", "it hangs")
        assert (first.given_up, second.given_up) == ([], ["add_up-0"])


async def test_a_new_engine_is_told_of_all_replicas(tmp_path: Path) -> None:
    async with served(tmp_path) as (orchestrator, _, _):
        orchestrator._start_over()  # pyright: ignore[reportPrivateUsage]
        await ask(orchestrator)
