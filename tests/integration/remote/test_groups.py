"""Orchestrators with different workflows behind one gateway."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from dyorc.authoring.workflow import Workflow
from dyorc.cells.cell import shared_cell
from dyorc.config import Settings
from dyorc.errors import DeadlineError, UnknownModelError
from dyorc.orchestrator.answers import own_arrays
from dyorc.remote.backend import RemoteBackend
from dyorc.remote.groups import GroupsBackend
from dyorc.repertoire import Repertoire
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.remote.ends import Told, arena_of, desk_of
from tests.integration.stack import FAST_LINK, FAST_TRANSPORT, within
from tests.workflows import parted

SETTINGS = Settings(transport=FAST_TRANSPORT)


@asynccontextmanager
async def leading(leaders: Told, workflows: list[Workflow], folder: Path, fence: int = 1) -> AsyncIterator[None]:
    """Runs a group's orchestrator while entered."""
    address = f"unix://{folder}/{leaders.group}-{fence}"
    async with (
        shared_cell(Repertoire.of(workflows), SETTINGS, "here", None) as orchestrator,
        desk_of(orchestrator, address) as desk,
    ):
        leaders.tell(desk, fence)
        yield


@asynccontextmanager
async def behind(groups: list[Told]) -> AsyncIterator[GroupsBackend]:
    """Runs a gateway's end before these groups."""
    with arena_of("gateway-1") as tensors:
        async with GroupsBackend([RemoteBackend(one, tensors, FAST_LINK) for one in groups], tensors) as backend:
            yield backend


async def ask(backend: GroupsBackend, workflow: Workflow, value: object, timeout_s: float = 60.0) -> np.ndarray:
    """Runs a workflow, and returns its first output."""
    return (
        await backend.infer(
            submission(workflow, [np.asarray(value)], _STATICS[workflow.name], within(timeout_s)), take=own_arrays
        )
    )[0]


_STATICS = {"squared": (0.0,), "doubled": (), "noted": ("",)}
LARGE = np.ones(50_000, np.float32)


async def test_each_model_is_served_by_the_group_that_has_it(tmp_path: Path) -> None:
    numbers, vectors = Told("numbers"), Told("vectors")
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(AsyncExitStack())
        await first.enter_async_context(leading(numbers, [parted.squared], tmp_path))
        await stack.enter_async_context(leading(vectors, [parted.doubled], tmp_path))
        backend = await stack.enter_async_context(behind([numbers, vectors]))
        await wait_until_async(lambda: len(backend.status.programs) == 2 and backend.status.is_ready, "both groups are there")
        assert await ask(backend, parted.squared, 3) == 10
        np.testing.assert_array_equal(await ask(backend, parted.doubled, LARGE), LARGE * 4)
        await backend.refresh()
        assert set(backend.report()["groups"]) == {"numbers", "vectors"}
        assert backend.statistics("squared").inference_count == backend.statistics("doubled").inference_count == 1
        with pytest.raises(UnknownModelError, match="no group has version '1' of model 'noted'"):
            await ask(backend, parted.noted, 1)

        await first.aclose()
        await wait_until_async(lambda: "numbers" in backend.status.lacking, "one is away")
        assert "group 'numbers' has no leader" in backend.status.lacking["numbers"]
        np.testing.assert_array_equal(await ask(backend, parted.doubled, LARGE), LARGE * 4)
        with pytest.raises(DeadlineError, match="group 'numbers' has no leader"):
            await ask(backend, parted.squared, 3, timeout_s=0.3)
