"""Gateways outlive their orchestrators: what is unanswered is answered by the next, and nothing has an effect twice."""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dyorc.authoring.workflow import Workflow
from dyorc.cells.orchestrator_cell import make_cell
from dyorc.cluster import packing
from dyorc.cluster.cluster_messages import CancelRequest, GatewayHello, Refused, decode_from_orchestrator, encode
from dyorc.cluster.gateway_server import GatewayServer
from dyorc.cluster.orchestrator_connection import OrchestratorConnection
from dyorc.config import CellsConfig, LinkConfig, OrchestratorConfig
from dyorc.engine.request_trace import BatchTrace, CallTrace, RequestTrace, TraceReader
from dyorc.errors import EffectLostError, TransportError
from dyorc.leader_election.leader import Leader, LeaderTerm
from dyorc.models.registry import ModelRegistry
from dyorc.transport.column_codec import Frame
from dyorc.transport.link import call
from dyorc.transport.tiers import TensorHolder
from dyorc.transport.zmq_security import ClusterKeys
from tests.asking import submission
from tests.chaos.parted import Group, ask, gateway
from tests.chaos.parted_process import NODE
from tests.deadlines import wait_until_async
from tests.integration.stack import FAST_TRANSPORT, within
from tests.workflows import parted

pytestmark = pytest.mark.anyio


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Starts one orchestrator."""
    found = Group(tmp_path)
    found.start()
    try:
        yield found
    finally:
        found.close()


async def test_requests_parts_and_stored_tensors_pass_between_processes(group: Group) -> None:
    async with gateway(group.folder, "gateway-1") as first, gateway(group.folder, "gateway-2") as second:
        await wait_until_async(lambda: bool(first.status.programs) and first.status.is_ready, "programs are loaded")
        await wait_until_async(lambda: second.is_connected, "the other is there")
        assert {offer.name for offer in first.offers.all} >= {"squared", "doubled", "noted", "counted"}
        for backend in (first, second):
            (y, pid) = await ask(backend, parted.squared, [7])
            assert (int(y), int(pid)) == (50, group.processes[0].pid)
            large = np.arange(100_000, dtype=np.float32)
            (y,) = await ask(backend, parted.doubled, [large])
            np.testing.assert_array_equal(y, large * 4)
            parts = backend.stream(
                submission(parted.counted, [np.asarray(1)], (12,), within(60)), take=lambda arrays: int(arrays[0])
            )
            assert [part async for together in parts for part in together] == [(1 + step) ** 2 + 1 for step in range(12)]
            (y,) = await ask(backend, parted.noted, [5], str(group.folder), 0.0)
            assert int(y) == 6
            arena = backend.tensors.exchange.arena
            await wait_until_async(lambda arena=arena: arena.num_blocks == 0, "all inputs are freed")
        await first.refresh()
        assert first.levels().programs["doubled_program"].num_calls == 4
        assert first.statistics("squared").inference_count == 2


async def test_streams_of_programs_outlive_their_orchestrator_unless_they_have_effects(group: Group) -> None:
    async with gateway(group.folder, "gateway-1") as backend:
        await wait_until_async(lambda: bool(backend.status.programs) and backend.status.is_ready, "programs are loaded")
        found: dict[str, list[int]] = {"ticked": [], "ticked_once": []}

        async def read(workflow: Workflow) -> None:
            stream = backend.stream(submission(workflow, [np.asarray(1)], (300,), within(60)), take=lambda arrays: int(arrays[0]))
            async for together in stream:
                found[workflow.name].extend(together)

        reading = [asyncio.create_task(read(workflow)) for workflow in (parted.ticked, parted.ticked_once)]
        await wait_until_async(lambda: all(len(parts) > 10 for parts in found.values()), "the first parts")
        group.kill(group.processes[0].pid)  # another one starts
        await reading[0]
        assert found["ticked"] == list(range(1, 301)), "each part once"
        with pytest.raises(EffectLostError):
            await reading[1]
        assert found["ticked_once"] == list(range(1, len(found["ticked_once"]) + 1))


async def test_nothing_of_an_orchestrator_that_was_stopped_past_its_lease_is_used(tmp_path: Path) -> None:
    """Only the fence tells: the stale one goes on, and heartbeats are too slow here to notice that it was stopped."""
    group = Group(tmp_path)
    slow = LinkConfig(heartbeat_interval_s=60, heartbeat_timeout_s=600)
    try:
        stale = group.start(is_stubborn=True)
        async with gateway(group.folder, "gateway-1", slow) as backend:
            await wait_until_async(lambda: backend.is_connected and backend.status.is_ready, "the first one leads")
            waiting = asyncio.create_task(ask(backend, parted.squared, [9], 0.5))
            await ask(backend, parted.doubled, [np.ones(3, np.float32)])  # the first request is running by now
            os.kill(stale.pid, signal.SIGSTOP)
            second = group.start()
            leaders = backend._leaders  # pyright: ignore[reportPrivateUsage]
            await wait_until_async(lambda: leaders.leader is not None and leaders.leader.fence == 2, "the second one leads")
            os.kill(stale.pid, signal.SIGCONT)
            (y, pid) = await waiting
            assert (int(y), int(pid)) == (82, second.pid)
            for number in range(20):
                (_, pid) = await ask(backend, parted.squared, [number])
                assert int(pid) == second.pid
    finally:
        group.close()


async def test_a_stale_desk_and_garbage_are_refused(tmp_path: Path) -> None:
    heard: list[int] = []
    lead = LeaderTerm(group="default", fence=1, is_sure=lambda: True, report_fence=heard.append, is_lost=lambda: False)
    repertoire = ModelRegistry.of([parted.squared])
    transport = FAST_TRANSPORT.model_copy(update={"arena_bytes": 2**20})
    async with make_cell(repertoire, OrchestratorConfig(), transport, CellsConfig()) as orchestrator:
        gateway_server = GatewayServer(orchestrator, f"unix://{tmp_path}/desk", LinkConfig(), lead=lead)
        async with gateway_server:
            said: list[str] = []
            for frames in (
                [b"garbage"],
                [encode(CancelRequest(1))],
                [encode(GatewayHello("g", TensorHolder("other", NODE, "a"), 0))],
            ):
                told = asyncio.Event()

                def take(frames: Sequence[Frame], told: asyncio.Event = told) -> None:
                    message = decode_from_orchestrator(frames[0])
                    assert isinstance(message, Refused)
                    said.append(message.reason)
                    told.set()

                link = call(gateway_server.address, LinkConfig(), take, lambda reason: None)
                link.send(frames)
                await asyncio.wait_for(told.wait(), 30)
                link.close()
            assert "is not a message" in said[0]
            assert "an unregistered gateway sent CancelRequest" in said[1]
            assert "holds tensors as 'other'" in said[2]
            holder = TensorHolder("gateway-1", NODE, "arena")
            leader = Leader(group="default", fence=2, address=gateway_server.address)
            connection = OrchestratorConnection(leader, holder, lambda message, frames: None)
            with pytest.raises(TransportError, match="knows fence 2, this orchestrator has 1"):
                await connection.open(LinkConfig(), None, 2)
            connection.close()
            assert heard == [2]
            assert not gateway_server.num_gateways


async def test_by_zeromq_only_those_with_the_keys_are_let_in(tmp_path: Path) -> None:
    keys = ClusterKeys.generate()
    transport = FAST_TRANSPORT.model_copy(update={"arena_bytes": 2**20})
    repertoire = ModelRegistry.of([parted.squared])
    async with make_cell(repertoire, OrchestratorConfig(), transport, CellsConfig()) as orchestrator:
        gateway_server = GatewayServer(orchestrator, "tcp://127.0.0.1:*", LinkConfig(), keys=keys)
        async with gateway_server:
            leader = Leader(group="default", fence=1, address=gateway_server.address)
            holder = TensorHolder("gateway-1", NODE, "arena")
            stranger = OrchestratorConnection(leader, holder, lambda message, frames: None)
            with pytest.raises((TransportError, TimeoutError)):
                await stranger.open(LinkConfig(), ClusterKeys.generate(), 0)
            stranger.close()
            assert not gateway_server.num_gateways
            friend = OrchestratorConnection(leader, holder, lambda message, frames: None)
            assert (await friend.open(LinkConfig(), keys, 0)).fence == 1
            friend.close()


def test_a_story_travels_between_clocks() -> None:
    story = RequestTrace(7, 1000)
    batch = BatchTrace(1, "p", "r", "FULL", 2, 0, [7, 8], sent_ns=1100, ended_ns=1200)
    for _ in range(2):
        call_trace = CallTrace(1, "p", asked_ns=1050)
        story.calls.append(call_trace)
        story.add_dispatch(call_trace, batch)
        story.end_call(call_trace, 1200)
    story.ended_ns, story.is_answered = 1300, True
    found = RequestTrace(1, 5900)
    values = msgspec.msgpack.decode(msgspec.msgpack.encode(packing.pack_trace(story)))
    packing.unpack_trace_into(found, values, 5000, numbers_from=100)
    assert [(one.asked_ns, one.ended_ns, one.outcome) for one in found.calls] == [(6050, 6200, "done")] * 2
    assert found.calls[0].batches[0] is found.calls[1].batches[0]
    assert (found.number, found.started_ns, found.ended_ns, found.calls[0].batches[0].sent_ns) == (107, 5900, 6300, 6100)
    assert found.calls[0].batches[0].requests == (107, 108)
    assert len(TraceReader(found).new_steps()) == len(TraceReader(story).new_steps())
