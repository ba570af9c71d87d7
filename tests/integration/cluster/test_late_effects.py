"""Effects that come after the answer, between a gateway and an orchestrator: neither ends before they have happened."""

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.answering.local_answers import own_arrays
from dyorc.cells.orchestrator_cell import make_shared_cell
from dyorc.config import Settings
from dyorc.models.registry import ModelRegistry
from tests.asking import submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.cluster.ends import Told, gateway, gateway_server_of
from tests.integration.stack import FAST_TRANSPORT

pytestmark = pytest.mark.anyio

LARGE = np.ones(50_000, np.float32)
may_run, sums = threading.Event(), list[float]()


@dyorc.program(max_batch_size=1, pure=False)
def note_sum(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, " batch"]:
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


async def test_a_gateway_keeps_inputs_and_an_orchestrator_stays_until_effects_have_happened(tmp_path: Path) -> None:
    may_run.clear()
    sums.clear()
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
