"""Requests that are given up, and gateways that go: the orchestrator forgets them, and other gateways notice nothing."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from dyorc.answering.local_answers import own_arrays
from dyorc.answering.tensor_exchange import Tensors
from dyorc.cluster import effect_announcements
from dyorc.cluster.cluster_messages import AnswerMessage, CancelRequest, EffectAck, EffectAhead, FromOrchestrator, SubmitRequest
from dyorc.cluster.gateway_server import GatewayServer
from dyorc.cluster.orchestrator_connection import OrchestratorConnection
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.config import HistoriesConfig
from dyorc.leader_election.leader import Leader
from dyorc.telemetry.histories.history import RequestHistory
from dyorc.telemetry.histories.history_files import read_histories
from dyorc.telemetry.histories.history_recorder import HistoryRecorder
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings
from dyorc.telemetry.record import Origin
from dyorc.transport.column_codec import Frame
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.cluster.ends import Told, arena_of, gateway, gateway_server_of
from tests.integration.stack import FAST_LINK, Stack, running, within
from tests.kept_records import KeptRecords
from tests.workflows import arithmetic, large, parted, slow

_REPOSITORY = Path(__file__).parents[3]


class Scene(NamedTuple):
    """A gateway's end, and what is behind it."""

    stack: Stack
    gateway_server: GatewayServer
    backend: RemoteBackend
    recorder: HistoryRecorder
    histories: Path


@pytest.fixture(scope="module")
async def context(leaves_nothing: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("desk")
    targets = [slow.gated, parted.noted, arithmetic.quadruple, large.whole]
    histories = HistoriesConfig(folder=str(folder / "histories"))
    async with contextlib.AsyncExitStack() as exits:
        recorder = exits.enter_context(HistoryRecorder(histories))
        stack = await exits.enter_async_context(running(targets))
        listening = gateway_server_of(stack.orchestrator, f"unix://{folder}/desk", histories=recorder)
        gateway_server = await exits.enter_async_context(listening)
        leaders = Told()
        leaders.tell(gateway_server)
        async with gateway(leaders) as backend:
            await wait_until_async(lambda: backend.status.programs and backend.status.is_ready, "programs are loaded")
            yield Scene(stack, gateway_server, backend, recorder, folder / "histories")


def vector(number: int) -> np.ndarray:
    """Returns an input of `gated` that is told from others."""
    return np.full(4, number, np.float32)


async def ask_gated(backend: RemoteBackend, number: int, folder: Path) -> float:
    """Runs `gated`."""
    (y,) = await backend.infer(submission(slow.gated, [vector(number)], (str(folder), 0.0), within(60)), take=own_arrays)
    return float(y[0])


async def test_a_request_that_was_given_up_is_gone_from_the_engine(context: Scene, tmp_path: Path) -> None:
    orchestrator = context.stack.orchestrator
    asking = asyncio.create_task(ask_gated(context.backend, 5, tmp_path))
    await wait_until_async(lambda: (tmp_path / "started-5").exists(), "it runs")
    assert orchestrator.runs(slow.gated)
    asking.cancel()
    await wait_until_async(lambda: not orchestrator.runs(slow.gated), "the engine has forgotten it")
    assert asking.cancelled()
    assert not orchestrator.num_requests
    (tmp_path / "open").touch()
    assert await ask_gated(context.backend, 6, tmp_path) == 7
    exchange = context.backend.tensors.exchange
    await wait_until_async(lambda: not exchange.num_tensors, "its inputs are freed")


async def test_a_gateway_that_is_killed_takes_only_its_own_requests_with_it(context: Scene, tmp_path: Path) -> None:
    orchestrator = context.stack.orchestrator
    command = [sys.executable, "-m", "tests.integration.cluster.gateway_process", context.gateway_server.address, str(tmp_path)]
    command += map(str, range(10, 15))
    process = subprocess.Popen(command, cwd=_REPOSITORY)  # noqa: ASYNC220 (it is killed and waited for like others)
    try:
        await wait_until_async(lambda: orchestrator.num_requests == 5, "the orchestrator has its requests")
        await wait_until_async(lambda: (tmp_path / "started-10").exists(), "the first of them runs")
        assert orchestrator.tensors.holder("gateway-that-is-killed") is not None
        own = asyncio.create_task(ask_gated(context.backend, 1, tmp_path))
        await wait_until_async(lambda: orchestrator.num_requests == 6, "the orchestrator has another one")
    finally:
        process.kill()
        process.wait()
    await wait_until_async(lambda: orchestrator.num_requests == 1, "its requests are forgotten")
    assert orchestrator.tensors.holder("gateway-that-is-killed") is None
    assert context.gateway_server.num_gateways == 1
    assert not own.done()
    (tmp_path / "open").touch()
    assert await own == 2
    assert not orchestrator.runs(slow.gated)
    assert context.backend.is_connected


class SilentGateway:
    """A gateway that asks for `noted`, and does not say that it knows of an effect before it is told to."""

    def __init__(self, context: Scene, tensors: Tensors, folder: Path) -> None:
        leader = Leader(group="default", fence=1, address=context.gateway_server.address, node="here")
        self.connection = OrchestratorConnection(leader, tensors.exchange.holder, self._receive)
        self.announced: list[int] = []
        self.answered: dict[int, AnswerMessage] = {}
        self._tensors = tensors
        self._folder = folder
        self._is_silent = True

    async def ask(self, *numbers: int) -> None:
        """Asks once for each number, and waits until an effect is announced."""
        await self.connection.open(FAST_LINK, None, 0)
        for number in numbers:
            asked = submission(parted.noted, [np.asarray(number)], (str(self._folder), 0.0))
            headers, frames, _ = self._tensors.pack([self._tensors.keep_all(asked.inputs)])
            self.connection.send(SubmitRequest(number, *asked.model, tuple(headers), asked.statics, 60.0), frames)
        await wait_until_async(lambda: self.announced, "an effect is announced")

    def speak(self) -> None:
        """Says what it was asked to say, and from now on at once."""
        self._is_silent = False
        for number in self.announced:
            self.connection.send(EffectAck(number))

    def _receive(self, message: FromOrchestrator, frames: Sequence[Frame]) -> None:
        if isinstance(message, EffectAhead):
            self.announced.append(message.number)
            if not self._is_silent:
                self.connection.send(EffectAck(message.number))
        elif isinstance(message, AnswerMessage):
            self.answered[message.request_id] = message


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["its gateway leaves", "its client leaves"])
async def test_an_answer_that_nobody_reads_is_freed(context: Scene, is_cancelled: bool) -> None:
    orchestrator = context.stack.orchestrator
    with arena_of("gateway-that-reads-nothing") as tensors:
        answered: list[FromOrchestrator] = []
        leader = Leader(group="default", fence=1, address=context.gateway_server.address, node="here")
        connection = OrchestratorConnection(leader, tensors.exchange.holder, lambda message, _: answered.append(message))
        await connection.open(FAST_LINK, None, 0)
        asked = submission(large.whole, [np.ones(1, np.float32)])
        headers, frames, _ = tensors.pack([tensors.keep_all(asked.inputs)])
        connection.send(SubmitRequest(1, *asked.model, tuple(headers), asked.statics, 60.0), frames)
        await wait_until_async(lambda: any(isinstance(each, AnswerMessage) for each in answered), "it is answered")
        assert orchestrator.runs(large.whole), "its answer is held until it is read"
        if is_cancelled:
            connection.send(CancelRequest(1))
            await wait_until_async(lambda: not orchestrator.runs(large.whole), "its answer is freed")
        connection.close()
        await wait_until_async(lambda: not orchestrator.runs(large.whole), "its answer is freed")
    await wait_until_async(lambda: context.gateway_server.num_gateways == 1, "it is gone")


async def note(context: Scene, number: int, folder: Path) -> float:
    """Runs `noted` at a gateway that answers."""
    asked = submission(parted.noted, [np.asarray(number)], (str(folder), 0.0), within(60))
    return float((await context.backend.infer(asked, take=own_arrays))[0])


async def test_a_batch_is_not_run_if_a_gateway_goes_before_it_knows_of_the_effect(context: Scene, tmp_path: Path) -> None:
    with mock.patch.object(effect_announcements, "PATIENCE_S", 600.0), arena_of("gateway-that-is-silent") as tensors:
        silent = SilentGateway(context, tensors, tmp_path)
        await silent.ask(1)
        own = asyncio.create_task(note(context, 2, tmp_path))
        await wait_until_async(lambda: context.stack.orchestrator.num_requests == 2, "the orchestrator has both requests")
        silent.connection.close()
        assert await own == 3
    assert (tmp_path / "runs").read_text().split() == ["2"]
    assert not context.stack.orchestrator.num_requests


async def test_a_gateway_that_does_not_know_of_an_effect_holds_up_only_itself(context: Scene, tmp_path: Path) -> None:
    with arena_of("gateway-that-is-silent") as tensors:
        silent = SilentGateway(context, tensors, tmp_path)
        await silent.ask(*range(10, 20))
        assert [await note(context, number, tmp_path) for number in (1, 2, 3)] == [2, 3, 4]
        assert (tmp_path / "runs").read_text().split() == ["1", "2", "3"]
        silent.speak()
        await wait_until_async(lambda: len(silent.answered) == 10, "its requests are answered, too")
        silent.connection.close()
        assert sorted((tmp_path / "runs").read_text().split()) == sorted(map(str, (1, 2, 3, *range(10, 20)))), "each once"
    assert not context.stack.orchestrator.num_requests
    await wait_until_async(lambda: context.gateway_server.num_gateways == 1, "it is gone")


async def test_a_suspended_request_has_one_history_and_its_gateway_gets_no_trace(context: Scene, tmp_path: Path) -> None:
    with arena_of("gateway-that-is-silent") as tensors:
        silent = SilentGateway(context, tensors, tmp_path)
        await silent.ask(77)
        assert await note(context, 78, tmp_path) == 79, "the other is suspended"
        silent.speak()
        await wait_until_async(lambda: 77 in silent.answered, "it is answered, too")
        silent.connection.close()
    assert silent.answered[77].story is None

    def histories_of(number: int) -> list[RequestHistory]:
        histories = [history for history in read_histories(context.histories) if "x" in history.inputs]
        arrays = [(history, history.inputs["x"].array()) for history in histories]
        return [history for history, array in arrays if array is not None and array.tolist() == number]

    await wait_until_async(lambda: histories_of(77) and histories_of(78), "histories are written")
    (history,) = histories_of(77)
    assert (history.error, [call.program for call in history.calls]) == ((), ["squared_program", "noted_program"])


async def test_requests_of_a_gateway_that_has_left_have_no_history(context: Scene, tmp_path: Path) -> None:
    before = num_made(context.recorder)
    with arena_of("gateway-that-leaves") as tensors:
        leaving = SilentGateway(context, tensors, tmp_path)
        await leaving.ask(90)
        leaving.connection.close()
        await wait_until_async(lambda: not context.stack.orchestrator.num_requests, "its request is forgotten")
    await note(context, 91, tmp_path)
    await wait_until_async(lambda: num_made(context.recorder) > before, "the next one is written")
    assert num_made(context.recorder) == before + 1


def num_made(recorder: HistoryRecorder) -> float:
    """Returns how many histories were written, or dropped."""
    readings = Readings()
    recorder.measure(readings)
    return sum(readings.of(metric)[()] for metric in (catalogue.HISTORIES_WRITTEN, catalogue.HISTORIES_DROPPED))


async def test_a_record_at_the_gateway_has_the_batches_of_the_orchestrator(context: Scene) -> None:
    shelf = KeptRecords()
    origin = Origin(request_id="a", transport="http")
    asked = submission(arithmetic.quadruple, [vector(1)], (), within(60), origin=origin, recorder=shelf)
    await context.backend.infer(asked, take=own_arrays)
    (record,) = shelf.records
    assert (record.outcome, record.workflow) == ("ok", "quadruple")
    assert [call.program for call in record.story.calls] == ["double", "double"]
    first, second = ([batch.replica_id for batch in call.batches] for call in record.story.calls)
    assert first == second == [name for name in context.stack.workers if name.startswith("double")]
    for call in record.story.calls:
        moments = [record.started_ns, call.asked_ns, call.batches[0].sent_ns, call.ended_ns, record.ended_ns]
        assert moments == sorted(moments)
