"""Histories of requests that come through gateways: their orchestrator records them, each leader in files of its own."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.answering.local_answers import own_arrays
from dyorc.cells.orchestrator_cell import make_shared_cell
from dyorc.config import HistoriesConfig, Settings
from dyorc.core.request import RequestFacts, Terms
from dyorc.models.registry import ModelRegistry
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replay.replay_report import replay_all
from dyorc.replay.replayer import Replayer
from dyorc.telemetry.histories.history_files import read_histories
from dyorc.telemetry.histories.history_recorder import HistoryRecorder
from tests.asking import submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.cluster.ends import Told, gateway, gateway_server_of
from tests.integration.stack import FAST_TRANSPORT

pytestmark = pytest.mark.anyio

Vector = Float[np.ndarray, " n"]
Vectors = Float[np.ndarray, "batch n"]
may_run, has_begun = threading.Event(), threading.Event()


@dyorc.program
def total(x: Vectors) -> Float[np.ndarray, " batch"]:
    return x.sum(axis=1)


@dyorc.program
def double(x: Vectors) -> Vectors:
    has_begun.set()
    may_run.wait(TIMEOUT_S)
    return 2 * x


@dyorc.workflow
async def doubled_if_large(x: Vector) -> Vector:
    if await dyorc.when(total(x), lambda value: value > 5):
        return double(x)
    return x


@dyorc.workflow(name="doubled_if_large")
async def doubled_if_larger(x: Vector) -> Vector:
    if await dyorc.when(total(x), lambda value: value > 7):
        return double(x)
    return x


@contextlib.asynccontextmanager
async def leading(leaders: Told, folder: Path, fence: int = 1, **config: Any) -> AsyncGenerator[Orchestrator]:
    """Runs a leader that records histories, while entered; its engine stays until the end of the program that it runs."""
    settings = Settings(transport=FAST_TRANSPORT)
    with HistoryRecorder(HistoriesConfig(folder=str(folder / "histories"), **config)) as recorder:
        async with (
            make_shared_cell(ModelRegistry.of([doubled_if_large]), settings, "here", None) as orchestrator,
            gateway_server_of(orchestrator, f"unix://{folder}/{fence}", histories=recorder) as gateway_server,
        ):
            leaders.tell(gateway_server, fence)
            yield orchestrator


def request_of(number: float, name: str, **terms: Any) -> Any:
    """Returns a request with an id."""
    facts = RequestFacts(name)
    x = np.array([number, 0], np.float32)
    return submission(doubled_if_large, [x], terms=Terms(**terms), facts=lambda: facts)


@pytest.fixture(autouse=True)
def open_gate() -> None:
    may_run.set()


async def test_a_history_has_what_came_with_the_request_and_is_replayed(tmp_path: Path) -> None:
    leaders = Told()
    async with leading(leaders, tmp_path, tenants=("a",)), gateway(leaders) as backend:
        await wait_until_async(lambda: backend.status.programs and backend.status.is_ready, "the programs are ready")
        for number in range(10):
            asked = request_of(number, f"r{number}", tenant="a", priority=3)
            await backend.infer(asked, take=own_arrays)
        await backend.infer(request_of(1, "of another tenant", tenant="b"), take=own_arrays)
        await backend.infer(request_of(1, "copy", tenant="a", is_shadow=True), take=own_arrays)
    histories = list(read_histories(tmp_path / "histories"))
    assert [history.request_id for history in histories] == [f"r{number}" for number in range(10)]
    assert {(history.workflow, history.version, history.tenant, history.priority) for history in histories} == {
        ("doubled_if_large", "1", "a", 3)
    }
    assert histories[6].calls[0].compute_ms > 0, "its calls are timed"
    same = replay_all(Replayer(doubled_if_large), histories)
    assert (same.num_same, same.num_different) == (10, 0)
    other = replay_all(Replayer(doubled_if_larger), histories)
    assert (other.num_same, other.num_different) == (8, 2)


async def test_a_fraction_and_digests_are_recorded_as_the_settings_say(tmp_path: Path) -> None:
    leaders = Told()
    async with gateway(leaders) as backend:
        async with leading(leaders, tmp_path, ratio=0.0):
            await backend.infer(request_of(1, "not drawn"), take=own_arrays)
        async with leading(leaders, tmp_path, fence=2, redact=("x",)):
            await backend.infer(request_of(1, "redacted"), take=own_arrays)
    (history,) = read_histories(tmp_path / "histories")
    assert (history.request_id, history.redacted, history.inputs["x"].data) == ("redacted", ("x",), None)


async def test_a_change_of_leaders_leaves_one_history_of_each_request(tmp_path: Path) -> None:
    leaders = Told()
    async with contextlib.AsyncExitStack() as stack:
        backend = await stack.enter_async_context(gateway(leaders))
        first = await stack.enter_async_context(contextlib.AsyncExitStack())
        await first.enter_async_context(leading(leaders, tmp_path))
        await wait_until_async(lambda: backend.status.programs and backend.status.is_ready, "the programs are ready")
        await backend.infer(request_of(6, "before"), take=own_arrays)
        may_run.clear()
        has_begun.clear()
        asking = asyncio.create_task(backend.infer(request_of(9, "meanwhile"), take=own_arrays))
        await wait_until_async(has_begun.is_set, "the first leader runs it")
        second = await stack.enter_async_context(leading(leaders, tmp_path, fence=2))
        await wait_until_async(lambda: second.num_requests, "the second leader has it")
        may_run.set()
        await asyncio.wait_for(first.aclose(), TIMEOUT_S)
        (answer,) = await asking
        assert answer.tolist() == [18, 0]
    histories = list(read_histories(tmp_path / "histories"))
    assert [(history.request_id, history.error) for history in histories] == [("before", ()), ("meanwhile", ())]
    assert len(list((tmp_path / "histories").iterdir())) == 2, "each leader has a file of its own"
