"""Random tensors for servers to send, from this process or from one that gets a signal while it reads."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

from dyorc.config import TransportConfig
from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.tiers import ByteSpan

CHUNK = 4096
CONFIG = TransportConfig(chunk_bytes=CHUNK, max_chunks_in_flight=4)
PATIENT = CONFIG.model_copy(update={"peer_timeout_s": 30.0})
START = 128
"""The offset at which every block of a `FakeSource` begins."""


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
    """Makes blocks 1, 2, ... of random bytes."""
    return FakeSource({number: bytearray(os.urandom(size)) for number, size in enumerate(sizes, 1)})


def whole(source: FakeSource, block: int) -> ByteSpan:
    return ByteSpan(block, START, len(source.blocks[block]))


SIZES = [0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 100 * CHUNK, 100 * CHUNK + 13]
_SERVER = """
import os, signal, sys
from dyorc.config import TransportConfig
from dyorc.transport.zmq_tensors import ZmqTensorServer
from dyorc.transport.grpc_tensors import Endpoint, GrpcTensorServer
from tests.integration.tensor_source import CHUNK, START, source_of
kind, number = sys.argv[1], int(sys.argv[2])
source = source_of(200 * CHUNK)
source.before_read = lambda: source.num_reads == 20 and os.kill(os.getpid(), number)
config = TransportConfig(chunk_bytes=CHUNK)
kinds = {"zmq": lambda: ZmqTensorServer(source, "127.0.0.1", config, None)}
kinds["grpc"] = lambda: GrpcTensorServer(source, Endpoint("127.0.0.1"), config, "t")
with kinds[kind]() as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def doomed_server(kind: str, number: signal.Signals) -> Iterator[str]:
    """Runs a server in a separate process that gets a signal when it reads its 20th chunk; yields its address."""
    command = [sys.executable, "-c", _SERVER, kind, str(int(number))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
