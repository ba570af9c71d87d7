"""Both ends of the ZeroMQ tier, and a server that answers whatever a test wants."""

import contextlib
import threading
from collections.abc import Callable, Iterator

import msgspec
import zmq

from dyorc.config import TransportConfig
from dyorc.transport.tiers import ByteSpan, TensorHolder
from dyorc.transport.zmq_security import ClusterKeys
from dyorc.transport.zmq_tensors import ZmqTensorServer, ZmqTier
from tests.integration.tensor_source import CONFIG, PATIENT, FakeSource

HASTY = CONFIG.model_copy(update={"peer_timeout_s": 0.2})


@contextlib.contextmanager
def serving(
    source: FakeSource, config: TransportConfig = PATIENT, keys: ClusterKeys | None = None, host: str = "127.0.0.1"
) -> Iterator[TensorHolder]:
    with ZmqTensorServer(source, host, config, keys) as server:
        yield TensorHolder("replica-7", "node-1", "", server.address)


@contextlib.contextmanager
def fetching(config: TransportConfig = PATIENT, keys: ClusterKeys | None = None) -> Iterator[ZmqTier]:
    with contextlib.closing(ZmqTier(config, keys)) as tier:
        yield tier


def fetch(tier: ZmqTier, holder: TensorHolder, *spans: ByteSpan) -> list[bytearray]:
    buffers = [bytearray(span.num_bytes) for span in spans]
    tier.fetch(holder, spans, [memoryview(buffer) for buffer in buffers])
    return buffers


@contextlib.contextmanager
def fake_server() -> Iterator[tuple["zmq.Socket[bytes]", TensorHolder]]:
    """Yields a socket on which the test answers, and a holder that is reached there."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 30_000)
        socket.bind("tcp://127.0.0.1:*")
        yield socket, TensorHolder("replica-7", "", "", socket.getsockopt_string(zmq.LAST_ENDPOINT))


def receive_all(socket: "zmq.Socket[bytes]") -> list[tuple[bytes, list[int]]]:
    """Returns peer and request of every message that arrives until there is a pause."""
    found = []
    while socket.poll(50):
        peer, frame = socket.recv_multipart()
        found.append((peer, msgspec.msgpack.decode(frame)))
    return found


def reply(request: list[int], outcome: int = 0, text: str = "", version: int = 1) -> bytes:
    return msgspec.msgpack.encode([version, request[1], outcome, text])


def in_thread(function: Callable[[], object]) -> Callable[[], object]:
    """Runs a function in a thread. Returns a function that waits for its result, or raises its error."""
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
