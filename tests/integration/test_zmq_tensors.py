"""The ZeroMQ tier over real sockets: every byte arrives, what is lost is said to be lost, strangers get and do nothing."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
import zmq

from dyorc.config import LinkConfig, TransportConfig
from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.tiers import Holder, Span
from dyorc.transport.zmq_link import DealerLink, RouterLink
from dyorc.transport.zmq_security import ClusterKeys
from dyorc.transport.zmq_tensors import Outcome, ZmqTensorServer, ZmqTier
from tests.deadlines import wait_until_async

CHUNK = 4096
CONFIG = TransportConfig(chunk_bytes=CHUNK, max_chunks_in_flight=4)
PATIENT = CONFIG.model_copy(update={"peer_timeout_s": 30.0})
HASTY = CONFIG.model_copy(update={"peer_timeout_s": 0.2})
START = 128
"""Where the blocks of `FakeSource` begin, counted as offsets are."""


class FakeSource:
    """Blocks in a dict."""

    def __init__(self, blocks: dict[int, bytearray]) -> None:
        self.blocks = blocks
        self.num_reads = 0
        self.before_read: Callable[[], object] = lambda: None
        self.after_read: Callable[[], object] = lambda: None

    def read_only(self, block_id: int, offset: int, num_bytes: int) -> memoryview:
        self.num_reads += 1
        self.before_read()
        if block_id not in self.blocks:
            raise TensorLostError(f"block {block_id} is not there")
        block = self.blocks[block_id]
        if not START <= offset <= offset + num_bytes <= START + len(block):
            raise TransportError(f"{num_bytes} bytes at {offset} are not all within block {block_id}")
        return memoryview(block)[offset - START : offset - START + num_bytes].toreadonly()

    def is_intact(self, block_id: int) -> bool:
        self.after_read()
        return block_id in self.blocks


def source_of(*sizes: int) -> FakeSource:
    """Blocks 1, 2, ... of random bytes."""
    return FakeSource({number: bytearray(os.urandom(size)) for number, size in enumerate(sizes, 1)})


@contextlib.contextmanager
def serving(
    source: FakeSource, config: TransportConfig = PATIENT, keys: ClusterKeys | None = None, host: str = "127.0.0.1"
) -> Iterator[Holder]:
    with ZmqTensorServer(source, host, config, keys) as server:
        yield Holder("replica-7", "node-1", "", server.address)


@contextlib.contextmanager
def fetching(config: TransportConfig = PATIENT, keys: ClusterKeys | None = None) -> Iterator[ZmqTier]:
    with contextlib.closing(ZmqTier(config, keys)) as tier:
        yield tier


def fetch(tier: ZmqTier, holder: Holder, *spans: Span) -> list[bytearray]:
    buffers = [bytearray(span.num_bytes) for span in spans]
    tier.fetch(holder, spans, [memoryview(buffer) for buffer in buffers])
    return buffers


def whole(source: FakeSource, block: int) -> Span:
    return Span(block, START, len(source.blocks[block]))


SIZES = [0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 100 * CHUNK, 100 * CHUNK + 13]


@pytest.mark.parametrize("num_bytes", SIZES)
def test_every_size_arrives(num_bytes: int) -> None:
    source = source_of(num_bytes)
    with serving(source) as holder, fetching() as tier:
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_parts_of_several_blocks_arrive_in_one_fetch() -> None:
    source = source_of(3 * CHUNK, 10, 0, 5 * CHUNK + 1)
    spans = [Span(1, START + 5, 2 * CHUNK), whole(source, 4), Span(2, START + 3, 4), Span(3, START, 0), whole(source, 1)]
    with serving(source) as holder, fetching() as tier:
        found = fetch(tier, holder, *spans)
        assert fetch(tier, holder) == []
    assert found == [source.blocks[span.block][span.offset - START :][: span.num_bytes] for span in spans]


def test_tiers_of_several_threads_share_a_server() -> None:
    source = source_of(200 * CHUNK)
    found: list[bytearray] = []

    def run(holder: Holder) -> None:
        with fetching() as tier:
            for _ in range(3):
                found.extend(fetch(tier, holder, whole(source, 1)))

    with serving(source) as holder:
        threads = [threading.Thread(target=run, args=(holder,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [source.blocks[1]] * 9


def test_a_block_that_is_not_there_is_lost_and_the_next_fetch_is_good() -> None:
    source = source_of(50 * CHUNK)
    with serving(source) as holder, fetching() as tier:
        for num_bytes in (0, 1, 30 * CHUNK):
            with pytest.raises(TensorLostError, match=r"'replica-7', block 9: block 9 is not there"):
                fetch(tier, holder, whole(source, 1), Span(9, START, num_bytes))
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_a_block_that_is_freed_in_the_middle_is_lost() -> None:
    source = source_of(50 * CHUNK, 10)
    source.before_read = lambda: source.num_reads == 20 and source.blocks.pop(1)
    with serving(source) as holder, fetching() as tier:
        with pytest.raises(TensorLostError, match="block 1"):
            fetch(tier, holder, whole(source, 1))
        assert fetch(tier, holder, whole(source, 2)) == [source.blocks[2]]


def test_a_block_that_is_freed_while_it_is_copied_is_lost() -> None:
    source = source_of(10)
    span = whole(source, 1)
    source.after_read = lambda: source.blocks.pop(1)
    with serving(source) as holder, fetching() as tier, pytest.raises(TensorLostError, match="freed while it was read"):
        fetch(tier, holder, span)


def test_bytes_outside_of_a_block_are_refused() -> None:
    source = source_of(10)
    with serving(source) as holder, fetching() as tier:
        for span in (Span(1, START, 11), Span(1, START - 1, 5), Span(1, 2**62, 1)):
            with pytest.raises(TransportError, match="not all within block 1") as caught:
                fetch(tier, holder, span)
            assert not isinstance(caught.value, TensorLostError)


def test_a_bug_of_the_source_is_told_and_ends_nothing() -> None:
    source = source_of(10)
    source.before_read = lambda: source.num_reads == 1 and {}["oops"]
    with serving(source) as holder, fetching() as tier:
        with pytest.raises(TransportError, match="KeyError"):
            fetch(tier, holder, whole(source, 1))
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_buffers_that_do_not_fit_are_refused() -> None:
    source = source_of(10)
    with serving(source) as holder, fetching() as tier:
        for spans, into in (
            ([whole(source, 1)], [memoryview(bytearray(9))]),
            ([whole(source, 1)], [memoryview(bytes(10))]),
            ([whole(source, 1)], [memoryview(bytearray(20))[::2]]),
            ([whole(source, 1)], []),
            ([Span(-1, START, 10)], [memoryview(bytearray(10))]),
            ([Span(1, 2**64, 10)], [memoryview(bytearray(10))]),
        ):
            with pytest.raises(TransportError):
                tier.fetch(holder, spans, into)
    assert source.num_reads == 0


def test_the_credit_is_never_exceeded_and_used_up() -> None:
    """A server that answers only when nothing more comes sees all that a receiver asks for on credit."""
    with fake_server() as (socket, holder), fetching() as tier:
        result = in_thread(lambda: fetch(tier, holder, Span(1, 0, 3 * CHUNK), Span(2, 0, 7 * CHUNK + 1)))
        counts, num_open = [], []
        while len(counts) < 3 + 8:
            num_open += receive_all(socket)
            counts.append(len(num_open))
            peer, request = num_open.pop(0)
            socket.send_multipart([peer, reply(request), bytes(request[4])])
        assert result() == [bytearray(3 * CHUNK), bytearray(7 * CHUNK + 1)]
    assert max(counts) == counts[0] == CONFIG.max_chunks_in_flight
    assert counts[:7] == [4] * 7


SERVER = """
import os, signal, sys
from dyorc.config import TransportConfig
from dyorc.transport.zmq_tensors import ZmqTensorServer
from dyorc.transport.grpc_tensors import GrpcTensorServer
from tests.integration.test_zmq_tensors import CHUNK, START, source_of
kind, number = sys.argv[1], int(sys.argv[2])
source = source_of(200 * CHUNK)
source.before_read = lambda: source.num_reads == 20 and os.kill(os.getpid(), number)
config = TransportConfig(chunk_bytes=CHUNK)
kinds = {"zmq": lambda: ZmqTensorServer(source, "127.0.0.1", config, None)}
kinds["grpc"] = lambda: GrpcTensorServer(source, "127.0.0.1", config, "t")
with kinds[kind]() as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def doomed_server(kind: str, number: signal.Signals) -> Iterator[str]:
    """Address of a server in a process of its own that gets a signal when it reads its 20th chunk."""
    command = [sys.executable, "-c", SERVER, kind, str(int(number))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_holder_that_dies_or_stops_in_the_middle_is_noticed_after_a_second(number: signal.Signals) -> None:
    source = source_of(10)
    with doomed_server("zmq", number) as address, serving(source) as living, fetching(TransportConfig(chunk_bytes=CHUNK)) as tier:
        start_s = time.monotonic()
        with pytest.raises(TensorLostError, match=r"nothing came from holder 'doomed' at tcp://127\.0\.0\.1:\d+ for 1\.0 s"):
            fetch(tier, Holder("doomed", "", "", address), Span(1, START, 200 * CHUNK))
        assert time.monotonic() - start_s > 0.9
        assert fetch(tier, living, whole(source, 1)) == [source.blocks[1]]


def test_a_holder_that_never_was_is_lost_and_one_at_a_new_address_is_found() -> None:
    source = source_of(10)
    with serving(source) as holder:
        gone = holder
    with fetching(HASTY) as tier, pytest.raises(TensorLostError, match="nothing came"):
        fetch(tier, gone, whole(source, 1))
    with fetching() as tier:
        for _ in range(2):
            with serving(source) as holder:
                assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]
        with pytest.raises(TransportError):
            fetch(tier, msgspec.structs.replace(holder, zmq_address="tcp://127.0.0.1:nowhere"), whole(source, 1))
        assert not tier.reaches(Holder("other", "", ""))


def test_a_server_stops_though_receivers_are_connected() -> None:
    source = source_of(10)
    with fetching() as tier, serving(source) as holder:
        fetch(tier, holder, whole(source, 1))


GARBAGE = [
    [b""],
    [b"\xff" * 100],
    [b"", b"", b""],
    [os.urandom(50)] * 20,
    [bytes(1000)],
    [msgspec.msgpack.encode([2, 1, 1, START, 10])],
    [msgspec.msgpack.encode([1, 1, 1, START])],
    [msgspec.msgpack.encode([1, 1, 1, START, 10, 5])],
    [msgspec.msgpack.encode([1, 2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1])],
    [msgspec.msgpack.encode([1, 1, 1, START, -10])],
    [msgspec.msgpack.encode([1, 1, 1, START, 10]), b"more"],
    [b"\x91" * 1000],
]


def test_a_server_drops_garbage() -> None:
    source = source_of(50 * CHUNK)
    with serving(source) as holder, fetching() as tier, zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(holder.zmq_address)
        for message in GARBAGE:
            socket.send_multipart(message)
        socket.send(msgspec.msgpack.encode([1, 7, 1, 2**63 - 1, 2**63 - 1]))
        assert msgspec.msgpack.decode(socket.recv())[:3] == [1, 7, Outcome.REFUSED]
        socket.send(bytes(10**6))  # too large to be listened to; the connection is closed
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]
        assert source.num_reads == 50, "something of the garbage was served"


def test_a_server_drops_what_is_not_zeromq() -> None:
    source = source_of(CHUNK)
    with serving(source) as holder, fetching() as tier:
        host, _, port = holder.zmq_address.removeprefix("tcp://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(1000))
            assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


@contextlib.contextmanager
def fake_server() -> Iterator[tuple["zmq.Socket[bytes]", Holder]]:
    """A socket that can answer anything, and a holder that is reached there."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 30_000)
        socket.bind("tcp://127.0.0.1:*")
        yield socket, Holder("replica-7", "", "", socket.getsockopt_string(zmq.LAST_ENDPOINT))


def receive_all(socket: "zmq.Socket[bytes]") -> list[tuple[bytes, list[int]]]:
    """Peer and request of all messages that come until there is a pause."""
    found = []
    while socket.poll(50):
        peer, frame = socket.recv_multipart()
        found.append((peer, msgspec.msgpack.decode(frame)))
    return found


def reply(request: list[int], outcome: int = 0, text: str = "", version: int = 1) -> bytes:
    return msgspec.msgpack.encode([version, request[1], outcome, text])


def in_thread(function: Callable[[], object]) -> Callable[[], object]:
    """Starts a function; what this returns waits for its result, or error."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> object:
        thread.join(30)
        assert found, "not after 30 s"
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    return wait


BAD_REPLIES = {
    "short": lambda request: [reply(request), bytes(CHUNK - 1)],
    "long": lambda request: [reply(request), bytes(CHUNK + 1)],
    "no body": lambda request: [reply(request)],
    "two bodies": lambda request: [reply(request), bytes(CHUNK), b""],
    "wrong version": lambda request: [reply(request, version=2), bytes(CHUNK)],
    "wrong outcome": lambda request: [reply(request, outcome=7), bytes(CHUNK)],
    "no header": lambda request: [b"\xc1\xff\x00", bytes(CHUNK)],
    "empty header": lambda request: [b"", bytes(CHUNK)],
    "refused": lambda request: [reply(request, outcome=2), bytes(CHUNK)],
}


@pytest.mark.parametrize("kind", BAD_REPLIES)
def test_a_bad_reply_is_an_error_and_writes_nothing_outside(kind: str) -> None:
    memory = bytearray(b"." * (CHUNK + 200))
    with fake_server() as (socket, holder), fetching() as tier:
        result = in_thread(lambda: tier.fetch(holder, [Span(1, 0, CHUNK)], [memoryview(memory)[100:-100]]))
        peer, frame = socket.recv_multipart()
        socket.send_multipart([peer, *BAD_REPLIES[kind](msgspec.msgpack.decode(frame))])
        with pytest.raises(TransportError) as caught:
            result()
        assert not isinstance(caught.value, TensorLostError)
    assert (memory[:100], memory[-100:]) == (b"." * 100, b"." * 100)


def test_late_replies_and_ones_to_nobody_are_not_taken_for_others() -> None:
    with fake_server() as (socket, holder), fetching(HASTY) as hasty:
        with pytest.raises(TensorLostError):
            fetch(hasty, holder, Span(1, 0, 5))
        late_peer, late = receive_all(socket)[0]
        result = in_thread(lambda: fetch(hasty, holder, Span(1, 0, 5)))
        peer, frame = socket.recv_multipart()
        request = msgspec.msgpack.decode(frame)
        assert request[1] != late[1], "a request id was used twice"
        socket.send_multipart([late_peer, reply(late), b"late!"])
        for stale in (late, [1, 0], [1, 2**63 - 1]):
            socket.send_multipart([peer, reply(stale), b"late!"])
        socket.send_multipart([peer, reply(request), b"right"])
        assert result() == [b"right"]


def test_replies_to_nobody_do_not_keep_a_holder_alive() -> None:
    is_over = threading.Event()
    with fake_server() as (socket, holder), fetching(HASTY) as tier:
        result = in_thread(lambda: fetch(tier, holder, Span(1, 0, 5)))
        peer, _ = socket.recv_multipart()

        def chatter() -> None:
            while not is_over.wait(0.01):
                socket.send_multipart([peer, reply([1, 10**6]), b"hello"])

        thread = threading.Thread(target=chatter)
        thread.start()
        try:
            with pytest.raises(TensorLostError, match="nothing came"):
                result()
        finally:
            is_over.set()
            thread.join()


KEYS = ClusterKeys.generate()


def test_owners_of_the_keys_reach_each_other() -> None:
    source = source_of(20 * CHUNK)
    with serving(source, keys=KEYS) as holder, fetching(keys=KEYS) as tier:
        assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]


def test_strangers_reach_nothing() -> None:
    other = ClusterKeys.generate()
    source = source_of(10)
    with serving(source, keys=KEYS) as holder:
        for keys in (None, other):
            with fetching(HASTY, keys) as tier, pytest.raises(TensorLostError, match="nothing came"):
                fetch(tier, holder, whole(source, 1))
        assert refusal(holder.zmq_address, other, KEYS.public) == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        assert source.num_reads == 0
        with fetching(keys=KEYS) as tier:
            assert fetch(tier, holder, whole(source, 1)) == [source.blocks[1]]
    with serving(source) as holder, fetching(HASTY, KEYS) as tier, pytest.raises(TensorLostError, match="nothing came"):
        fetch(tier, holder, whole(source, 1))  # a server that cannot prove that it belongs to the cluster


def refusal(address: str, keys: ClusterKeys, server_public: bytes) -> int:
    """What becomes of the connection of somebody who knows the server's public key."""
    events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = keys.public, keys.secret, server_public
        with socket.get_monitor_socket(events) as monitor:
            socket.connect(address)
            assert monitor.poll(30_000)
            event = int.from_bytes(monitor.recv_multipart()[0][:2], sys.byteorder)
            socket.disable_monitor()
        return event


def test_keys_are_whole_and_keep_their_secret() -> None:
    assert KEYS.secret.decode() not in f"{KEYS!r} {KEYS} {list(KEYS.__rich_repr__())}"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(KEYS), type=ClusterKeys) == KEYS
    with pytest.raises(TransportError, match="secret key has 3 characters"):
        ClusterKeys(KEYS.public, b"abc")


OPEN_ADDRESSES = [
    "tcp://0.0.0.0:*",
    "tcp://*:*",
    "tcp://10.0.0.7:4711",
    "tcp://eth0:*",
    "tcp://127.0.0.1.example.org:1",
    "tcp://127.0.0.1:0;10.0.0.7:4711",
    "tcp://[::]:*",
    "ws://127.0.0.1:80",
    "",
]


@pytest.mark.parametrize("address", OPEN_ADDRESSES)
async def test_what_leaves_the_machine_needs_keys(address: str) -> None:
    link = LinkConfig()
    with pytest.raises(TransportError, match="needs the cluster's keys"):
        DealerLink(address, link, 1.0)
    with pytest.raises(TransportError, match="needs the cluster's keys"):
        await RouterLink(address, link, lambda *_: None, lambda: None, lambda *_: None).__aenter__()
    with fetching() as tier, pytest.raises(TransportError, match="needs the cluster's keys"):
        fetch(tier, Holder("a", "", "", address), Span(1, 0, 1))
    if address.endswith(":*"):
        with pytest.raises(TransportError, match="needs the cluster's keys"):
            ZmqTensorServer(source_of(), address.removeprefix("tcp://").removesuffix(":*"), CONFIG, None).__enter__()


def test_all_interfaces_may_be_listened_on_with_keys() -> None:
    source = source_of(10)
    with serving(source, keys=KEYS, host="0.0.0.0") as holder, fetching(keys=KEYS) as tier:
        local = msgspec.structs.replace(holder, zmq_address=holder.zmq_address.replace("0.0.0.0", "127.0.0.1"))
        assert fetch(tier, local, whole(source, 1)) == [source.blocks[1]]


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_a_host_that_is_not_ours_cannot_be_listened_on(host: str) -> None:
    with pytest.raises(TransportError, match="cannot listen on"), ZmqTensorServer(source_of(), host, CONFIG, KEYS):
        pass


async def test_links_with_keys_carry_messages_and_notice_a_loss() -> None:
    received: list[list[bytes]] = []
    lost: list[bytes] = []
    router = RouterLink(
        "tcp://127.0.0.1:*",
        LinkConfig(),
        lambda peer, frames: received.append([peer, *map(bytes, frames)]),
        lambda: None,
        lambda peer, _: lost.append(peer),
        keys=KEYS,
    )
    async with router:
        stranger = DealerLink(router.address, LinkConfig(), 0.3, keys=ClusterKeys.generate())
        stranger.send([b"let me in"])
        dealer = DealerLink(router.address, LinkConfig(), 30.0, keys=KEYS)
        dealer.send([b"hello", b"world"])
        await wait_until_async(lambda: received, "the message")
        assert [frames[1:] for frames in received] == [[b"hello", b"world"]]
        assert router.send(received[0][0], [b"welcome"])
        assert list(map(bytes, dealer.receive() or [])) == [b"welcome"]
        assert stranger.receive() is None
        stranger.close(0)
        dealer.close()
        await wait_until_async(lambda: lost, "the loss")
        assert lost == [received[0][0]]
        assert len(received) == 1
