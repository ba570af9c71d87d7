"""The gRPC tier over real sockets, and as a client in another language sees it: by `tensors.proto` alone."""

import contextlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from dyorc.config import TransportConfig
from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.grpc_tensors import MAX_CHUNK_BYTES, Endpoint, GrpcTensorServer, GrpcTier
from dyorc.transport.tensors_pb2 import FetchRequest, TensorChunk
from dyorc.transport.tensors_pb2_grpc import TensorsStub, add_TensorsServicer_to_server
from dyorc.transport.tiers import ByteSpan, TensorHolder
from tests.integration.tensor_source import CHUNK, CONFIG, PATIENT, SIZES, START, FakeSource, doomed_server, source_of, whole

TOKEN = "the cluster's token"
RIGHT = (("authorization", f"Bearer {TOKEN}"),)


@contextlib.contextmanager
def serving(source: FakeSource, **options: Any) -> Iterator[TensorHolder]:
    with GrpcTensorServer(source, Endpoint("127.0.0.1", **options), CONFIG, TOKEN) as server:
        yield TensorHolder("replica-7", "node-1", "", "", server.address)


@contextlib.contextmanager
def fetching(config: TransportConfig = PATIENT, token: str = TOKEN, certificates: bytes | None = None) -> Iterator[GrpcTier]:
    with contextlib.closing(GrpcTier(config, token, certificates)) as tier:
        yield tier


def fetch(tier: GrpcTier, holder: TensorHolder, *spans: ByteSpan) -> list[bytearray]:
    buffers = [bytearray(span.num_bytes) for span in spans]
    tier.fetch(holder, spans, [memoryview(buffer) for buffer in buffers])
    return buffers


@pytest.mark.parametrize("num_bytes", SIZES)
def test_every_size_arrives(num_bytes: int) -> None:
    source = source_of(num_bytes)
    with serving(source) as holder, fetching() as tier:
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_parts_of_several_blocks_arrive_in_one_fetch() -> None:
    source = source_of(3 * CHUNK, 10, 0, 5 * CHUNK + 1)
    spans = [
        ByteSpan(1, START + 5, 2 * CHUNK),
        whole(source, 4),
        ByteSpan(2, START + 3, 4),
        ByteSpan(3, START, 0),
        whole(source, 1),
    ]
    with serving(source) as holder, fetching() as tier:
        found = fetch(tier, holder, *spans, *spans)
        assert fetch(tier, holder) == []
    assert found == [source.blocks[span.block][span.offset - START :][: span.num_bytes] for span in (*spans, *spans)]


def test_a_block_that_is_not_there_is_lost_and_the_next_fetch_is_good() -> None:
    source = source_of(50 * CHUNK)
    with serving(source) as holder, fetching() as tier:
        for num_bytes in (0, 1, 30 * CHUNK):
            with pytest.raises(TensorLostError, match=r"'replica-7' at 127.*NOT_FOUND: block 9 is not there"):
                fetch(tier, holder, whole(source, 1), ByteSpan(9, START, num_bytes))
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_a_block_that_is_freed_in_the_middle_or_while_it_is_copied_is_lost() -> None:
    source = source_of(50 * CHUNK, 10)
    spans = [whole(source, 1), whole(source, 2)]
    source.before_read = lambda: source.num_reads == 20 and source.blocks.pop(1)
    with serving(source) as holder, fetching() as tier:
        with pytest.raises(TensorLostError, match="block 1"):
            fetch(tier, holder, spans[0])
        source.after_read = lambda: source.blocks.pop(2)
        with pytest.raises(TensorLostError, match="freed while it was read"):
            fetch(tier, holder, spans[1])


def test_bytes_outside_of_a_block_are_refused_and_bugs_reported() -> None:
    source = source_of(10)
    with serving(source) as holder, fetching() as tier:
        for span in (ByteSpan(1, START, 11), ByteSpan(1, START - 1, 5), ByteSpan(1, 2**62, 1)):
            with pytest.raises(TransportError, match=r"OUT_OF_RANGE.*not all within block 1") as caught:
                fetch(tier, holder, span)
            assert not isinstance(caught.value, TensorLostError)
        source.before_read = lambda: {}["oops"]
        with pytest.raises(TransportError, match="INTERNAL: KeyError"):
            fetch(tier, holder, whole(source, 1))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_holder_that_dies_or_stops_in_the_middle_is_noticed(number: signal.Signals) -> None:
    source = source_of(10)
    with doomed_server("grpc", number) as address, serving(source) as living, fetching(TransportConfig(), "t") as tier:
        with pytest.raises(TensorLostError, match="'doomed'"):
            fetch(tier, TensorHolder("doomed", "", "", "", address), ByteSpan(1, START, 200 * CHUNK))
        if number is signal.SIGSTOP:  # nobody listens, though the kernel accepts the connection
            with pytest.raises(TensorLostError, match="nothing came from holder 'doomed'"):
                fetch(tier, TensorHolder("doomed", "", "", "", address), ByteSpan(1, START, 1))
    with fetching() as tier, pytest.raises(TensorLostError, match="UNAVAILABLE"):
        fetch(tier, living, whole(source, 1))


def test_a_slow_holder_is_not_lost_while_something_comes() -> None:
    """Each of ten chunks takes a fifth of the time after which a silent holder is given up."""
    source = source_of(10 * CHUNK)
    config = CONFIG.model_copy(update={"peer_timeout_s": 2.0})
    never = threading.Event()
    source.after_read = lambda: never.wait(0.2 * config.peer_timeout_s)
    with serving(source) as holder, fetching(config) as tier:
        start_s = time.monotonic()
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]
        assert time.monotonic() - start_s > 1.9 * config.peer_timeout_s


def test_a_server_stops_at_once_though_a_reader_does_not_read() -> None:
    source = source_of(2**26)
    with contextlib.ExitStack() as stack:
        with serving(source) as holder:
            channel = stack.enter_context(grpc.insecure_channel(holder.grpc_address))
            call = TensorsStub(channel).Fetch(FetchRequest(block=1, offset=START, num_bytes=2**26), metadata=RIGHT)
            next(call)
        with pytest.raises(grpc.RpcError):
            list(call)


@pytest.fixture
def stub() -> Iterator[TensorsStub]:
    """Opens a connection to a server with a block of some chunks."""
    with serving(FakeSource({1: bytearray(b"abc" * CHUNK)})) as holder, grpc.insecure_channel(holder.grpc_address) as channel:
        yield TensorsStub(channel)


def status_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError):
        list(call)
    return call.code()


def test_a_plain_client_reads_a_tensor(stub: TensorsStub) -> None:
    chunks = list(stub.Fetch(FetchRequest(block=1, offset=START + 1, num_bytes=2 * CHUNK + 5), metadata=RIGHT))
    assert [chunk.offset for chunk in chunks] == [0, CHUNK, 2 * CHUNK]
    assert b"".join(chunk.data for chunk in chunks) == (b"bca" * CHUNK)[: 2 * CHUNK + 5]
    assert list(stub.Fetch(FetchRequest(block=1, offset=START), metadata=RIGHT)) == []


def test_a_plain_client_gets_errors_that_say_what_is_wrong(stub: TensorsStub) -> None:
    assert status_of(stub.Fetch(FetchRequest(block=2, offset=START), metadata=RIGHT)) is grpc.StatusCode.NOT_FOUND
    most = FetchRequest(block=2**64 - 1, offset=2**64 - 1, num_bytes=2**64 - 1)
    assert status_of(stub.Fetch(most, metadata=RIGHT)) is grpc.StatusCode.NOT_FOUND
    most.block = 1
    assert status_of(stub.Fetch(most, metadata=RIGHT)) is grpc.StatusCode.OUT_OF_RANGE


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", ""),),
        (("authorization", TOKEN),),
        (("authorization", "Bearer "),),
        (("authorization", f"Bearer {TOKEN}x"),),
        (("authorization", f"Bearer {TOKEN[:-1]}"),),
        (("authorization", "Bearer no"), *RIGHT),
        (("authorization-bin", f"Bearer {TOKEN}".encode()),),
    ],
)
def test_a_client_without_the_token_gets_nothing(stub: TensorsStub, metadata: Any) -> None:
    request = FetchRequest(block=1, offset=START, num_bytes=1)
    assert status_of(stub.Fetch(request, metadata=metadata)) is grpc.StatusCode.UNAUTHENTICATED


def test_a_tier_with_the_wrong_token_says_so() -> None:
    source = source_of(10)
    with serving(source) as holder, fetching(token="another") as tier:
        with pytest.raises(TransportError, match="UNAUTHENTICATED") as caught:
            fetch(tier, holder, whole(source, 1))
        assert not isinstance(caught.value, TensorLostError)
    assert source.num_reads == 0


Answer = Callable[[Any, Any], Iterator[Any]]


@contextlib.contextmanager
def fake_server(answer: Answer) -> Iterator[TensorHolder]:
    """Runs a server that answers anything. The service's only method must be called `Fetch`."""
    service = type("Service", (), {"Fetch": staticmethod(answer)})()
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads, options=[("grpc.max_send_message_length", -1)])
        add_TensorsServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield TensorHolder("replica-7", "", "", "", f"127.0.0.1:{port}")
        server.stop(0).wait()


BAD_ANSWERS: dict[str, list[tuple[int, bytes]]] = {
    "nothing": [],
    "too little": [(0, bytes(9))],
    "too much": [(0, bytes(11))],
    "too much in the end": [(0, bytes(9)), (9, bytes(2))],
    "a gap": [(0, bytes(4)), (5, bytes(5))],
    "an overlap": [(0, bytes(5)), (4, bytes(5))],
    "not from the start": [(1, bytes(9))],
    "far away": [(2**64 - 1, bytes(10))],
    "empty chunks": [(0, b"")] * 3 + [(0, bytes(10))],
    "more after the end": [(0, bytes(10)), (10, b"")],
}


@pytest.mark.parametrize("kind", BAD_ANSWERS)
def test_a_bad_answer_is_an_error_and_writes_nothing_outside(kind: str) -> None:
    memory = bytearray(b"." * 30)

    def answer(request: Any, context: Any) -> Iterator[Any]:
        for offset, data in BAD_ANSWERS[kind]:
            yield TensorChunk(offset=offset, data=data)

    with fake_server(answer) as holder, fetching() as tier:
        with pytest.raises(TransportError) as caught:
            tier.fetch(holder, [ByteSpan(1, START, 10)], [memoryview(memory)[10:20]])
        assert not isinstance(caught.value, TensorLostError)
    assert (memory[:10], memory[20:]) == (b"." * 10, b"." * 10)


def test_the_largest_chunk_of_a_foreign_server_is_accepted() -> None:
    def answer(request: Any, context: Any) -> Iterator[Any]:
        yield TensorChunk(offset=0, data=bytes(MAX_CHUNK_BYTES))
        yield TensorChunk(offset=MAX_CHUNK_BYTES, data=b"end")

    with fake_server(answer) as holder, fetching() as tier:
        (found,) = fetch(tier, holder, ByteSpan(1, START, MAX_CHUNK_BYTES + 3))
    assert found[-4:] == b"\0end"


def test_security_is_needed_off_loopback() -> None:
    for host in ("0.0.0.0", "10.0.0.7", "[::]", "example.org", "localhost.example.org", ""):
        with pytest.raises(TransportError, match="not a loopback address"):
            GrpcTensorServer(source_of(), Endpoint(host), CONFIG, TOKEN)
        with fetching() as tier, pytest.raises(TransportError, match="not a loopback address"):
            fetch(tier, TensorHolder("a", "", "", "", f"{host}:4711"), ByteSpan(1, START, 1))
    for make in (lambda: GrpcTensorServer(source_of(), Endpoint("127.0.0.1"), CONFIG, ""), lambda: GrpcTier(CONFIG, "")):
        with pytest.raises(TransportError, match="token"):
            make()


def test_a_connection_without_security_may_be_chosen() -> None:
    source = source_of(10)
    with GrpcTensorServer(source, Endpoint("0.0.0.0", allow_insecure=True), CONFIG, TOKEN) as server, fetching() as tier:
        local = TensorHolder("a", "", "", "", server.address.replace("0.0.0.0", "127.0.0.1"))
        assert fetch(tier, local, whole(source, 1)) == [source.blocks[1]]


def test_an_address_in_use_cannot_be_listened_on() -> None:
    with serving(source_of()) as holder:
        port = int(holder.grpc_address.rpartition(":")[2])
        with pytest.raises(TransportError, match="cannot listen on"), serving(source_of(), port=port):
            pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Makes a certificate for 127.0.0.1, signed by itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    folder: Path = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test -keyout key -out chain"
    command += " -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return (folder / "chain").read_bytes(), (folder / "key").read_bytes()


def test_tls_carries_tensors_and_fails_without_trust(certificate: tuple[bytes, bytes]) -> None:
    source = source_of(20 * CHUNK)
    with serving(source, tls=certificate) as holder:
        with fetching(certificates=certificate[0]) as tier:
            assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]
        source.num_reads = 0
        with fetching() as tier, pytest.raises(TensorLostError, match="UNAVAILABLE"):
            fetch(tier, holder, whole(source, 1))
    lost = pytest.raises(TensorLostError, match="UNAVAILABLE")
    with serving(source) as holder, fetching(certificates=certificate[0]) as tier, lost:
        fetch(tier, holder, whole(source, 1))
    assert source.num_reads == 0
