"""Orchestrators with different workflows behind one gateway."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import structlog

from dyorc.answering.local_answers import own_arrays
from dyorc.authoring.workflow import Workflow
from dyorc.cells.orchestrator_cell import make_shared_cell
from dyorc.cluster.cluster_messages import OffersUpdate, StatusUpdate
from dyorc.cluster.groups_backend import GroupsBackend
from dyorc.cluster.orchestrator_connection import OrchestratorConnection
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.config import Settings
from dyorc.errors import DeadlineError, NotReadyError
from dyorc.gateway.catalog import Catalog
from dyorc.gateway.readiness import is_ready, require_ready
from dyorc.leader_election.leader import Leader
from dyorc.models.registry import ModelRegistry
from tests.asking import submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.cluster.ends import Told, arena_of, gateway_server_of
from tests.integration.stack import FAST_LINK, FAST_TRANSPORT, within
from tests.workflows import parted

SETTINGS = Settings(transport=FAST_TRANSPORT)


@asynccontextmanager
async def leading(leaders: Told, workflows: list[Workflow], folder: Path, fence: int = 1) -> AsyncIterator[None]:
    """Runs a group's orchestrator while entered."""
    address = f"unix://{folder}/{leaders.group}-{fence}"
    async with (
        make_shared_cell(ModelRegistry.of(workflows), SETTINGS, "here", None) as orchestrator,
        gateway_server_of(orchestrator, address) as gateway_server,
    ):
        leaders.tell(gateway_server, fence)
        yield


@asynccontextmanager
async def behind(groups: list[Told], patience_s: float = TIMEOUT_S) -> AsyncIterator[GroupsBackend]:
    """Runs a gateway's end before these groups."""
    with arena_of("gateway-1") as tensors:
        async with GroupsBackend([RemoteBackend(one, tensors, FAST_LINK) for one in groups], tensors, patience_s) as backend:
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
        with pytest.raises(NotReadyError, match="no group has version '1' of model 'noted'"):
            await ask(backend, parted.noted, 1)

        await first.aclose()
        model = Catalog(backend.offers).model("squared")
        await wait_until_async(lambda: not is_ready(backend.status, model), "one is away")
        with pytest.raises(NotReadyError, match="group 'numbers' has no leader"):
            require_ready(backend.status, model)
        assert backend.status.is_ready, "for models of the other"
        np.testing.assert_array_equal(await ask(backend, parted.doubled, LARGE), LARGE * 4)
        with pytest.raises(DeadlineError, match="group 'numbers' has no leader"):
            await ask(backend, parted.squared, 3, timeout_s=0.3)


async def test_a_group_that_nobody_leads_makes_its_own_models_unready_and_no_others(tmp_path: Path) -> None:
    """Even if both have a program in common."""
    numbers, notes = Told("numbers"), Told("notes")
    async with behind([numbers, notes]) as backend, AsyncExitStack() as stack:
        catalog = Catalog(backend.offers)
        assert not backend.status.is_ready, "it knows no model"
        first = await stack.enter_async_context(AsyncExitStack())
        await first.enter_async_context(leading(numbers, [parted.squared], tmp_path))
        await wait_until_async(lambda: "squared" in catalog.models, "the first group was heard of")
        assert not backend.status.is_ready, "it waits for the other"
        with pytest.raises(NotReadyError, match="group 'notes' has no leader"):
            require_ready(backend.status)
        await stack.enter_async_context(leading(notes, [parted.noted], tmp_path))
        await wait_until_async(lambda: backend.status.is_ready, "both were heard of")
        assert catalog.models.keys() >= {"noted", "squared"}

        await first.aclose()
        squared, noted = catalog.model("squared"), catalog.model("noted")
        await wait_until_async(lambda: not is_ready(backend.status, squared), "one is away")
        await wait_until_async(lambda: is_ready(backend.status, noted), "the other is ready, or becomes so")
        assert backend.status.is_ready
        require_ready(backend.status)
        async with leading(numbers, [parted.squared], tmp_path, fence=2):
            await wait_until_async(lambda: is_ready(backend.status, squared), "it is back")


async def test_a_gateway_does_not_wait_for_ever_for_a_group_that_nobody_leads(tmp_path: Path) -> None:
    numbers = Told("numbers")
    async with behind([numbers, Told("notes")], patience_s=0.0) as backend:
        assert not backend.status.is_ready, "nothing was heard of anybody"
        async with leading(numbers, [parted.squared], tmp_path):
            await wait_until_async(lambda: backend.status.is_ready, "it is ready for those that it knows")
            assert "squared" in {offer.name for offer in backend.offers.all}


async def test_a_gateway_is_not_ready_before_it_knows_what_its_orchestrator_serves() -> None:
    leader = Leader(group="numbers", fence=1, address="unix:///nowhere", node="here")
    with arena_of("gateway-1") as tensors:
        backend = RemoteBackend(Told("numbers", leader), tensors, FAST_LINK)
        backend._join(OrchestratorConnection(leader, tensors.exchange.holder, lambda message, frames: None), 1, 300.0)
        assert not backend.status.is_ready
        backend._receive(leader, OffersUpdate((), {}), ())
        backend._receive(leader, StatusUpdate({}), ())
        assert backend.status.is_ready, "nothing is served, and that is known"


async def test_a_leader_that_is_not_there_is_logged_once_and_then_counted() -> None:
    """A gateway dials it many times a second."""
    nobody = Leader(group="numbers", fence=1, address="unix:///nowhere/link", node="here")
    with structlog.testing.capture_logs() as logs, arena_of("gateway-1") as tensors:
        async with RemoteBackend(Told("numbers", nobody), tensors, FAST_LINK) as backend:
            await wait_until_async(lambda: backend._unreached._num_unsaid >= 3, "it has dialled again")
    assert [line["event"] for line in logs] == ["orchestrator_not_reached"]


async def test_a_leader_that_is_lost_is_said_and_that_it_is_back(tmp_path: Path) -> None:
    numbers = Told("numbers")
    with structlog.testing.capture_logs() as logs, arena_of("gateway-1") as tensors:
        async with RemoteBackend(numbers, tensors, FAST_LINK) as backend:
            for fence in (1, 2):
                async with leading(numbers, [parted.squared], tmp_path, fence):
                    await wait_until_async(lambda: backend.is_connected, "it is joined")
                await wait_until_async(lambda: not backend.is_connected, "it is lost")
    events = [line["event"] for line in logs if line["event"] in ("orchestrator_joined", "orchestrator_lost")]
    assert events == ["orchestrator_joined", "orchestrator_lost", "orchestrator_joined"], "the second loss comes soon after"
