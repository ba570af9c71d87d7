"""Effects at the end of an orchestrator: neither it nor a gateway ends before they have happened and are known."""

import asyncio
import threading
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.answering.local_answers import own_arrays
from dyorc.cells.orchestrator_cell import make_shared_cell
from dyorc.config import Settings
from dyorc.core.arrays import Array
from dyorc.errors import EffectLostError
from dyorc.models.registry import ModelRegistry
from tests.asking import submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.cluster.ends import Lead, Told, gateway, gateway_server_of
from tests.integration.stack import FAST_TRANSPORT

pytestmark = pytest.mark.anyio

LARGE = np.ones(50_000, np.float32)
HUGE = np.ones(500_000, np.float32)
"""What is made of it is taken on a thread."""
may_run, runs, sums = threading.Event(), list[float](), list[float]()


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    may_run.clear()
    runs.clear()
    sums.clear()


@dyorc.program(max_batch_size=1, pure=False)
def note_sum(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, " batch"]:
    runs.append(float(x.sum()))
    may_run.wait(TIMEOUT_S)
    sums.append(float(x.sum()))
    return x.sum(axis=1)


@dyorc.program
def halve(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x / 2


@dyorc.workflow
async def halved(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    note_sum(x)
    return halve(x)


@dyorc.workflow
async def summed(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, ""]:
    return note_sum(x)


async def test_a_gateway_keeps_inputs_and_an_orchestrator_stays_until_effects_have_happened(tmp_path: Path) -> None:
    told = Told()
    async with (
        make_shared_cell(ModelRegistry.of([halved]), Settings(transport=FAST_TRANSPORT), "here", None) as orchestrator,
        gateway_server_of(orchestrator, f"unix://{tmp_path}/desk") as gateway_server,
        gateway(told) as backend,
    ):
        told.tell(gateway_server)
        await wait_until_async(lambda: backend.status.is_ready, "the programs are ready")
        (answer,) = await backend.infer(submission(halved, [LARGE]), take=own_arrays)
        np.testing.assert_array_equal(answer, LARGE / 2)
        reading = asyncio.create_task(backend.finish_reading(TIMEOUT_S))
        draining = asyncio.create_task(gateway_server.drain(TIMEOUT_S))
        done, _ = await asyncio.wait([reading, draining], timeout=0.2)
        assert not done
        may_run.set()
        await asyncio.wait_for(asyncio.gather(reading, draining), TIMEOUT_S)
        assert sums == [50_000]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_drain_waits_for_an_answer_that_may_be_sent_only_once_the_lead_is_sure(tmp_path: Path, is_lost: bool) -> None:
    told, lead = Told(), Lead()
    async with gateway(told) as backend:
        async with (
            make_shared_cell(ModelRegistry.of([summed]), Settings(transport=FAST_TRANSPORT), "here", None) as orchestrator,
            gateway_server_of(orchestrator, f"unix://{tmp_path}/desk", lead=lead.term()) as gateway_server,
        ):
            told.tell(gateway_server)
            await wait_until_async(lambda: backend.status.programs and backend.status.is_ready, "the programs are ready")
            asking = asyncio.create_task(backend.infer(submission(summed, [LARGE]), take=own_arrays))
            await wait_until_async(lambda: runs, "the effect begins")
            lead.is_sure, lead.is_lost = False, is_lost
            may_run.set()
            draining = asyncio.create_task(gateway_server.drain(TIMEOUT_S))
            if not is_lost:
                done, _ = await asyncio.wait([draining], timeout=0.2)
                assert sums == [50_000]
                assert not done
                lead.is_sure = True
            await asyncio.wait_for(draining, TIMEOUT_S)
        assert sums == [50_000]
        if is_lost:
            with pytest.raises(EffectLostError):
                await asking
        else:
            assert await asking == [np.float32(50_000)]


@dyorc.workflow(wait_for_effects=True)
async def halved_after(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    note_sum(x)
    return halve(x)


async def test_an_effect_is_not_repeated_because_its_answer_was_lost_with_the_orchestrator(tmp_path: Path) -> None:
    """The answer is lost while it is read where it lies, and another orchestrator leads by then."""
    told, has_begun, may_go_on = Told(), threading.Event(), threading.Event()
    may_run.set()

    def take(arrays: list[Array]) -> int:
        has_begun.set()
        may_go_on.wait(TIMEOUT_S)
        return len(arrays)

    async with gateway(told) as backend:
        for fence in (1, 2):
            async with (
                make_shared_cell(ModelRegistry.of([halved_after]), Settings(transport=FAST_TRANSPORT), "here", None) as cell,
                gateway_server_of(cell, f"unix://{tmp_path}/desk-{fence}", lead=Lead().term(fence)) as gateway_server,
            ):
                told.tell(gateway_server, fence)
                await wait_until_async(lambda fence=fence: backend.fence == fence and backend.status.is_ready, "it leads")
                if fence == 1:
                    asking = asyncio.create_task(backend.infer(submission(halved_after, [HUGE]), take=take))
                    await wait_until_async(has_begun.is_set, "the answer is read")
                    continue
                with mock.patch.object(backend.tensors, "lost_of", return_value=[("of the first", 1)]):
                    may_go_on.set()
                    with pytest.raises(EffectLostError, match="had not been read"):
                        await asyncio.wait_for(asking, TIMEOUT_S)
    assert sums == [500_000]
