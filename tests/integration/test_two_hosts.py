"""Orchestrator and replicas on two hosts: network namespaces with a link that is measured, slowed, tapped and cut.

The orchestrator runs in this process, which is on the first host meanwhile; replicas are processes on either.
"""

import asyncio
import contextlib
import importlib
import itertools
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import msgspec
import numpy as np
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from dyorc.authoring.loading import load
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import RecordsConfig, TransportConfig
from dyorc.errors import TransportError
from dyorc.telemetry.critical_path import RequestStage
from dyorc.telemetry.diagnosis import diagnose
from dyorc.telemetry.record import Origin
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.recording import Recording
from dyorc.transport.arena_file import sweep
from dyorc.transport.cluster_network import ClusterSecrets, NodeNetwork
from dyorc.transport.messages import ReplicaHello, encode
from dyorc.transport.staging import Fetch, StagingArea
from dyorc.transport.tiers import ByteSpan, TensorHolder
from dyorc.transport.zmq_link import DealerLink
from dyorc.transport.zmq_security import ClusterKeys, secure_client
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.route_process import SIZES, Answer, Question
from tests.integration.stack import FAST_LINK, FAST_TRANSPORT, Stack, running, within
from tests.two_hosts import TwoHosts, two_hosts, why_not
from tests.workflows import far, relayed

_FAR = f"{Path(far.__file__)}:carried"
_GALLERY = f"{Path(relayed.__file__)}:gallery"
_MARKED = f"{Path(far.__file__)}:marked"
_OCR = f"{Path(__file__).parents[2] / 'examples' / 'ocr' / 'workflow.py'}:ocr"


@pytest.fixture(scope="module")
def both() -> Iterator[TwoHosts]:
    """Starts both hosts, for all tests of this module, which run on the first."""
    if reason := why_not():
        pytest.skip(reason)
    with two_hosts() as found, found.first.entered():
        yield found


@pytest.fixture
def hosts(both: TwoHosts) -> Iterator[TwoHosts]:
    """Yields both hosts, with a fresh link and nothing running on the second."""
    yield both
    both.heal()
    both.second.kill()
    both.first.kill()
    sweep(FAST_TRANSPORT.arena_folder)  # as the next process on a host would, whose replicas were killed


@contextlib.asynccontextmanager
async def serving(
    hosts: TwoHosts,
    targets: Sequence[Workflow],
    *,
    first: Sequence[tuple[str, Program]] = (),
    second: Sequence[tuple[str, Program]] = (),
    transport: TransportConfig = FAST_TRANSPORT,
) -> AsyncGenerator[Stack]:
    """Serves `targets`, with a replica for each (target, program) on each host; its id is ``PROGRAM-NODE``.

    Args:
        transport: The replicas'. This process does without gRPC, whose threads outlive their use by ten seconds.
    """
    network = NodeNetwork(host=hosts.first.address, secrets=ClusterSecrets.generate())
    async with running(targets, num_replicas=0, network=network) as stack:
        stack.transport = transport
        for host, node, placed in ((hosts.first, "here", first), (hosts.second, "there", second)):
            for target, program in placed:
                stack.spawn_on(host, target, program, f"{program.name}-{node}")
        for node, placed in (("here", first), ("there", second)):
            for _, program in placed:
                await stack.wait_for_replica(program, f"{program.name}-{node}")
        yield stack


async def carry(stack: Stack, seed: int, rest_s: float = 0.0, timeout_s: float = 30.0) -> float:
    """Sends one request, checks its tensor and returns the seconds that it took."""
    started_s = time.monotonic()
    checksum, _, _ = await stack.orchestrator.infer(submission(far.carried, [np.array(seed)], (rest_s,), within(timeout_s)))
    assert int(checksum) == far.checksum_of(far.words_of(seed)), f"wrong bytes in the tensor of seed {seed}"
    return time.monotonic() - started_s


# What goes over the link


async def test_programs_on_two_hosts_read_pages_as_well_as_on_one(hosts: TwoHosts) -> None:
    """Lines are cut out of the page on the second host: the page goes there once, however many lines it has."""
    pytest.importorskip("rapidocr", reason="needs the extra `ocr`")
    ocr, page, texts = _ocr(0)
    detect, straighten, classify, recognise = (
        (_OCR, _program(ocr, name)) for name in ("detect", "straighten", "classify", "recognise")
    )
    async with serving(hosts, [ocr], first=[detect, straighten, classify, recognise]) as stack:
        alone = await stack.orchestrator.infer(submission(ocr, [page], terms=within(60)))
    hosts.first.kill()
    async with serving(hosts, [ocr], first=[detect, classify], second=[straighten, recognise]) as stack:
        num_before = hosts.first.num_bytes_sent()
        text, boxes, scores = await stack.orchestrator.infer(submission(ocr, [page], terms=within(60)))
        num_sent = hosts.first.num_bytes_sent() - num_before
    print(f"\n{page.nbytes} bytes of a page, {num_sent} sent to the other host")
    assert [line.decode() for line in text] == texts
    np.testing.assert_array_equal(text, alone[0])
    np.testing.assert_array_equal(boxes, alone[1])
    np.testing.assert_allclose(scores, alone[2], atol=1e-4)
    assert page.nbytes < num_sent < 1.5 * page.nbytes


def _ocr(seed: int) -> "tuple[Workflow, np.ndarray, list[str]]":
    """Returns the example's workflow, and a page with its texts. Its models are for its replicas only, and so is the library
    that runs them, whose threads would count as left behind here.
    """
    runtime = SimpleNamespace(InferenceSession=object)
    with mock.patch.dict(sys.modules, {"onnxruntime": runtime}), mock.patch.object(sys, "path", [*sys.path]):  # pyright: ignore[reportArgumentType]
        workflow = load(_OCR)
        page, texts = importlib.import_module("sample_page").draw_page(seed)
    assert isinstance(workflow, Workflow)
    return workflow, page, texts


def _program(workflow: Workflow, name: str) -> Program:
    return next(program for program in workflow.programs if program.name == name)


async def test_tensors_cannot_be_read_on_the_way(hosts: TwoHosts) -> None:
    times = np.array(2**20 // len(far.MARK))
    first, second = [(_MARKED, far.count)], [(_MARKED, far.repeat)]
    async with serving(hosts, [far.marked], first=first, second=second) as stack:
        with hosts.captured() as seen:
            (num,) = await stack.orchestrator.infer(submission(far.marked, [times]))
    assert num == times
    assert len(seen) > times * len(far.MARK), "the tensor went over the link"
    assert far.MARK not in seen
    with hosts.captured() as seen:
        _send_in_the_clear(hosts, far.MARK * int(times))
    assert seen.count(far.MARK) > 0.9 * times, "anyone who listens finds what is not encrypted"


def _send_in_the_clear(hosts: TwoHosts, data: bytes) -> None:
    with hosts.second.entered():
        server = socket.create_server((hosts.second.address, 0))
    with server, socket.create_connection(server.getsockname()) as sender:
        receiver, _ = server.accept()
        with receiver:
            sender.sendall(data[: 2**16])
            num_left = len(data) - 2**16
            num_left -= len(receiver.recv(2**16, socket.MSG_WAITALL)) - 2**16
            for at in range(2**16, len(data), 2**16):
                sender.sendall(data[at : at + 2**16])
                num_left -= len(receiver.recv(len(data[at : at + 2**16]), socket.MSG_WAITALL))
            assert num_left == 0


@pytest.mark.parametrize("keys", [None, ClusterKeys.generate()], ids=["no keys", "other keys"])
async def test_strangers_without_the_keys_are_not_let_in(hosts: TwoHosts, keys: ClusterKeys | None) -> None:
    async with serving(hosts, [far.carried], second=[(_FAR, far.make)]) as stack:
        holder = stack.orchestrator.tensors.holder("make-there")
        assert holder is not None
        hello = ReplicaHello("intruder", far.digest.name, 1, TensorHolder("intruder", "there", ""))
        with hosts.second.entered():
            refusals = await asyncio.to_thread(
                lambda: [_knock(address, keys, encode(hello)) for address in (stack.address, holder.zmq_address)]
            )
        assert all(refusals), refusals
        assert not stack.status(far.digest).replica_pids
        if keys is None:
            with pytest.raises(TransportError, match="needs the cluster's keys"):
                DealerLink(stack.address, FAST_LINK, 1.0)


def _knock(address: str, keys: ClusterKeys | None, message: bytes) -> bool:
    """Tries to send something and returns whether it was refused."""
    refused = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.setsockopt(zmq.LINGER, 0)
        monitor = client.get_monitor_socket(refused | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        if keys is not None:
            secure_client(client, address, keys)
        client.connect(address)
        client.send(message)
        event = recv_monitor_message(monitor)["event"] if monitor.poll(10_000) else 0
        client.disable_monitor()
        monitor.close(0)
    return bool(event & (refused | zmq.EVENT_DISCONNECTED))


# Slow links


async def test_tensors_are_on_their_way_while_the_program_is_busy(hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 200 Mbit/s and 20 ms each way, 8 MiB take 0.4 s. With a queue, they have come before the batch that needs them
    starts.
    """
    num_requests = 5
    is_there: list[bool] = []
    take = StagingArea.take

    def watched(self: StagingArea, holder: TensorHolder, span: ByteSpan, fetch: Fetch | None = None) -> memoryview | None:
        staged = self._find(holder, span)
        is_there.append(staged is not None and staged.memory.nbytes > 0)
        return take(self, holder, span, fetch)

    monkeypatch.setattr(StagingArea, "take", watched)
    async with serving(hosts, [far.carried], second=[(_FAR, far.make)]) as stack:
        await stack.start_worker(far.digest)
        fast_s = min([await carry(stack, seed) for seed in range(4)])
        with hosts.slowed(mbit_per_s=200, delay_s=0.02):
            alone_s = min([await carry(stack, seed) for seed in range(3)])
            is_there.clear()
            rest_s = max(0.5, 3 * alone_s)  # on a slow machine, all else takes longer, too
            started_s = time.monotonic()
            await asyncio.gather(*(carry(stack, seed, rest_s) for seed in range(num_requests)))
            each_s = (time.monotonic() - started_s) / num_requests
    print(
        f"\n8 MiB from host to host and back: {fast_s:.3f} s; over the slow link {alone_s:.3f} s. "
        f"In a queue before a program of {rest_s:.1f} s: {each_s:.3f} s each; {sum(is_there)} of {num_requests} were there before"
    )
    assert len(is_there) == num_requests
    assert sum(is_there) >= num_requests - 2, "all but the first, for which nobody waited, and the second at most"


async def test_a_request_says_that_it_waited_for_a_large_tensor_from_the_other_host(hosts: TwoHosts) -> None:
    """At 100 Mbit/s, 8 MiB take 0.7 s."""
    records = RecordStore(RecordsConfig())
    recording = Recording(RecordsConfig())
    recording.add(records)
    async with serving(hosts, [far.carried], second=[(_FAR, far.make)]) as stack:
        await stack.start_worker(far.digest)
        with hosts.slowed(mbit_per_s=100):
            origin = Origin(request_id="far", transport="http")
            await stack.orchestrator.infer(
                submission(far.carried, [np.array(1)], (0.0,), within(30.0), origin=origin, recorder=recording)
            )
    record = records.find("far", lambda _: True)
    assert record is not None
    diagnosis = diagnose(record, records.wrong_guesses)
    assert diagnosis.cause is RequestStage.MOVING
    assert diagnosis.stages_ns[RequestStage.MOVING] > 0.5 * 0.67e9
    assert sum(diagnosis.stages_ns.values()) == record.duration_ns
    assert "inputs and outputs of 'digest' were moved: 8 MiB over the network (zmq) in " in diagnosis.sentences[0]


# Cut links


async def test_a_cut_link_is_noticed_and_restored_and_no_byte_is_wrong(hosts: TwoHosts) -> None:
    placed = [(_FAR, far.make), (_FAR, far.digest)]
    async with serving(hosts, [far.carried], first=placed, second=placed) as stack:
        status, seeds = stack.status(far.digest), itertools.count()
        answered_s: list[float] = []
        is_over = asyncio.Event()

        async def send() -> None:
            while not is_over.is_set():
                await carry(stack, next(seeds))
                answered_s.append(time.monotonic())

        clients = [asyncio.create_task(send()) for _ in range(4)]
        await wait_until_async(lambda: len(answered_s) > 8, "answers")
        hosts.cut()
        cut_s = time.monotonic()
        await wait_until_async(lambda: "digest-there" not in status.replica_pids, "the cut is noticed")
        noticed_s = time.monotonic() - cut_s
        num_cut = len(answered_s)
        await wait_until_async(lambda: len(answered_s) > num_cut + 8, "the first host goes on alone")
        num_cut = len(answered_s) - num_cut
        hosts.heal()
        healed_s = time.monotonic()
        await wait_until_async(
            lambda: {"digest-here", "digest-there"} <= set(status.replica_pids), "the second host's replica is back"
        )
        back_s = time.monotonic() - healed_s
        num_before = len(answered_s)
        await wait_until_async(lambda: len(answered_s) > num_before + 8, "answers")
        is_over.set()
        await asyncio.gather(*clients)
    longest_s = max(later - earlier for earlier, later in itertools.pairwise(answered_s))
    print(
        f"\ncut noticed after {noticed_s:.2f} s, {num_cut} answers while it was cut, longest pause {longest_s:.2f} s, "
        f"back {back_s:.2f} s after healing; {len(answered_s)} answers"
    )


async def test_tensors_that_went_down_with_their_host_are_computed_again(hosts: TwoHosts) -> None:
    transport = FAST_TRANSPORT.model_copy(update={"staging_bytes": 0})  # else the tensor is here before its host is gone
    async with serving(hosts, [far.carried], first=[(_FAR, far.digest)], second=[(_FAR, far.make)], transport=transport) as stack:
        busy = asyncio.create_task(carry(stack, 1, rest_s=2.0))
        waiting = [asyncio.create_task(carry(stack, seed)) for seed in range(2, 6)]
        await wait_until_async(lambda: _num_queued(stack, far.digest) >= 2, "tensors wait for the reader, which is busy")
        hosts.second.kill()
        killed_s = time.monotonic()
        stack.spawn_on(hosts.first, _FAR, far.make, "make-here")
        await asyncio.gather(busy, *waiting)
        print(f"\nanswered {time.monotonic() - killed_s:.2f} s after the host was gone")


def _num_queued(stack: Stack, program: Program) -> int:
    return stack.orchestrator.report()["programs"][program.name]["num_queued"]


# Two tiers


async def test_the_cheaper_of_two_tiers_is_taken_and_the_other_where_it_is_blocked(hosts: TwoHosts) -> None:
    transport = FAST_TRANSPORT.model_copy(update={"grpc": True, "grpc_allow_insecure": True})
    async with serving(hosts, [far.carried], first=[(_FAR, far.digest)], second=[(_FAR, far.make)], transport=transport) as stack:
        holder = stack.orchestrator.tensors.holder("make-there")
        assert holder is not None
        answer = await asyncio.to_thread(_ask, stack, hosts, holder)
        print(f"\n{answer.report}")
        (costs,) = answer.report.values()
        assert set(costs) == {"zmq", "grpc"}
        for num_bytes, taken in zip(SIZES, answer.taken, strict=True):
            total_us = {name: cost["base_us"] + cost["us_per_mib"] * num_bytes / 2**20 for name, cost in costs.items()}
            assert total_us[taken] <= min(total_us.values()) + 1
        await carry(stack, 1)
        hosts.second.block_port(int(holder.zmq_address.rpartition(":")[2]))
        answer = await asyncio.to_thread(_ask, stack, hosts, holder)
        assert answer.taken == ["grpc", "grpc"]
        assert set(answer.report["make-there"]) == {"grpc"}


def _ask(stack: Stack, hosts: TwoHosts, holder: TensorHolder) -> Answer:
    question = msgspec.json.encode(Question(stack.place_of(hosts.first), holder))
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.route_process"], input=question, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Answer)


async def test_a_program_reads_the_stream_of_another_on_the_other_host_while_it_grows(hosts: TwoHosts) -> None:
    first, second = [(_GALLERY, relayed.pictures)], [(_GALLERY, relayed.brighter)]
    async with serving(hosts, [relayed.gallery], first=first, second=second) as stack:
        stream = stack.orchestrator.stream(submission(relayed.gallery, [np.array(1)], (5,)))
        assert [float(part[0][-1]) async for together in stream for part in together] == [2, 3, 4, 5, 6]
