# pyright: basic
# grpcio ships no types.
"""The gRPC tier: bytes of blocks across a TLS or network boundary, and for programs in other languages (`tensors.proto`).

A holder runs a `GrpcTensorServer`, a receiver has a `GrpcTier` in each thread that fetches. Every call carries the cluster's
token; without TLS both ends stay on loopback unless told otherwise, as the token and the tensors could be read on the way.
Tensors of any size are streamed; HTTP/2's flow control limits the bytes on their way. Only this file and
the generated one import grpc.
"""

import contextlib
import hmac
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import grpc
import structlog

from dyorc.config import TransportConfig
from dyorc.errors import TensorLostError, TransportError
from dyorc.protocol.header_names import AUTHORIZATION
from dyorc.system.ports import is_loopback
from dyorc.transport.tensors_pb2 import FetchRequest, TensorChunk  # pyright: ignore[reportAttributeAccessIssue]
from dyorc.transport.tensors_pb2_grpc import TensorsServicer, TensorsStub, add_TensorsServicer_to_server
from dyorc.transport.tiers import BlockSource, ByteSpan, TensorHolder, check_buffers

_log = structlog.get_logger("dyorc.transport")

MAX_CHUNK_BYTES = 64 * 2**20
"""Largest chunk that is accepted from any server."""

_MAX_SENT_BYTES = 256 * 1024
"""Largest chunk that is sent. In one message of 1 MiB, the copies of gRPC's layers come one after the other: that takes 1.8
times as long as four messages, where one is copied while another travels."""

_FRAMING_BYTES = 1024
"""Room for the rest of a message."""

_MAX_REQUEST_BYTES = 4096

_MAX_CALLS = 64
"""Calls that a server answers at once, each in a thread; more wait. Threads start on demand."""

_CALLS_AHEAD = 4
"""Open calls of a fetch of many spans, so that it does not wait a round trip for each."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens, and how safe that is.

    Attributes:
        host: An IP address of this node, in brackets if it is one of IPv6.
        port: 0 takes a free one.
        tls: The server's certificate chain and its private key, both PEM.
        allow_insecure: Listen on other than loopback addresses without TLS, e.g. because a mesh encrypts.
    """

    host: str
    port: int = 0
    tls: tuple[bytes, bytes] | None = None
    allow_insecure: bool = False


class GrpcTensorServer:
    """Sends bytes of its process's blocks to holders of the token, in separate threads while entered.

    Args:
        source: What it reads from.
        token: The cluster's; anyone who has it can read all tensors.

    Attributes:
        address: Where it listens, e.g. ``10.0.0.7:4712``; set once entered.

    Raises:
        TransportError: If there is no token, or the endpoint's host needs TLS.
    """

    def __init__(self, source: BlockSource, endpoint: Endpoint, config: TransportConfig, token: str) -> None:
        _check_token(token)
        _check_host(endpoint.host, has_tls=endpoint.tls is not None, allow_insecure=endpoint.allow_insecure)
        self._source = source
        self._endpoint = endpoint
        self._config = config
        self._token = token
        self.address = ""

    def __enter__(self) -> Self:
        """Starts listening.

        Raises:
            TransportError: If the address cannot be listened on, or the certificate is invalid.
        """
        self._threads = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="dyorc-grpc-tensors")
        self._server = grpc.server(self._threads, options=_options(_MAX_REQUEST_BYTES, ("grpc.so_reuseport", 0)))
        add_TensorsServicer_to_server(_Tensors(self._source, self._config, self._token), self._server)
        host, wanted = self._endpoint.host, f"{self._endpoint.host}:{self._endpoint.port}"
        try:
            port = self._bind(wanted)
        except RuntimeError as error:
            self._server.start()  # gRPC's own threads would outlive a server that never started
            self.__exit__(None, None, None)
            raise TransportError(f"cannot listen on {wanted}: {error}") from error
        self._server.start()
        self.address = f"{host}:{port}"
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.stop(0).wait()
        self._threads.shutdown()

    def _bind(self, address: str) -> int:
        if self._endpoint.tls is None:
            return self._server.add_insecure_port(address)
        certificate_chain, key = self._endpoint.tls
        return self._server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate_chain)]))


class _Tensors(TensorsServicer):
    """The service."""

    def __init__(self, source: BlockSource, config: TransportConfig, token: str) -> None:
        self._source = source
        self._chunk_bytes = min(config.chunk_bytes, _MAX_SENT_BYTES)
        self._authorization = f"Bearer {token}".encode()

    def Fetch(self, request: Any, context: Any) -> Iterator[Any]:
        tokens = [value for key, value in context.invocation_metadata() if key == AUTHORIZATION]
        if len(tokens) != 1 or not hmac.compare_digest(_as_bytes(tokens[0]), self._authorization):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the cluster's token is missing or wrong")
        try:
            yield from chunks_of(self._source, request, self._chunk_bytes)
        except TensorLostError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except TransportError as error:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, str(error))
        except Exception as error:
            _log.exception("chunk_not_read", block=request.block, offset=request.offset, num_bytes=request.num_bytes)
            context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")


def chunks_of(source: BlockSource, request: Any, chunk_bytes: int) -> Iterator[Any]:
    """Yields the chunks that answer a request.

    Raises:
        TensorLostError: If the block does not exist, or is freed meanwhile.
        TransportError: If some bytes lie outside of it.
    """
    source.read_only(request.block, request.offset, request.num_bytes)  # refuses before the first chunk rather than at the last
    for at in range(0, request.num_bytes, chunk_bytes):
        num_bytes = min(chunk_bytes, request.num_bytes - at)
        chunk = TensorChunk(offset=at, data=bytes(source.read_only(request.block, request.offset + at, num_bytes)))
        if not source.is_intact(request.block):  # checked after the copy: overwritten bytes are never sent as the block's
            raise TensorLostError(f"block {request.block} was freed while it was read")
        yield chunk


class ChunkSink:
    """Puts the chunks that answer one request in place.

    Args:
        target: Where the bytes go, as many as were asked for.
    """

    def __init__(self, target: memoryview) -> None:
        self._target = target
        self._num_received = 0

    def take(self, chunk: Any) -> None:
        """Takes the next chunk.

        Raises:
            TransportError: If it is empty, not the next, or more than was asked for.
        """
        num_left = len(self._target) - self._num_received
        if chunk.offset != self._num_received or not 0 < len(chunk.data) <= num_left:
            raise TransportError(
                f"a chunk of {len(chunk.data)} bytes came for offset {chunk.offset}, "
                f"expected up to {num_left} bytes for {self._num_received}"
            )
        self._target[self._num_received : self._num_received + len(chunk.data)] = chunk.data
        self._num_received += len(chunk.data)

    def finish(self) -> None:
        """Checks that nothing is missing at the end.

        Raises:
            TransportError: If some are missing.
        """
        if self._num_received != len(self._target):
            raise TransportError(f"{self._num_received} bytes came, expected {len(self._target)}")


class GrpcTier:
    """Fetches from other processes' `GrpcTensorServer`s. Blocking; each thread has its own.

    Args:
        token: The cluster's.
        root_certificates: PEM of the authority that signed the servers' certificates; None talks without TLS.
        allow_insecure: Send the token to other than loopback addresses without TLS.

    Raises:
        TransportError: If there is no token.
    """

    name = "grpc"

    def __init__(
        self, config: TransportConfig, token: str, root_certificates: bytes | None = None, *, allow_insecure: bool = False
    ) -> None:
        _check_token(token)
        self._config = config
        self._token = token
        self._root_certificates = root_certificates
        self._allow_insecure = allow_insecure
        self._channels: dict[str, tuple[str, grpc.Channel]] = {}
        self._watchdog = _Watchdog(config.peer_timeout_s)

    def reaches(self, holder: TensorHolder) -> bool:
        """Returns whether it has a server."""
        return bool(holder.grpc_address)

    def fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        """Copies the bytes of `spans` into buffers of the same lengths.

        Raises:
            TensorLostError: If the holder does not have a block, or no longer, or nothing came for `peer_timeout_s`.
            TransportError: If the answer is malformed, or the holder refuses the token or cannot be connected to securely.
        """
        buffers = check_buffers(spans, into)
        calls: deque[tuple[Any, memoryview]] = deque()
        try:
            stub = TensorsStub(self._channel_of(holder))
            for span, buffer in zip(spans, buffers, strict=True):
                if len(calls) == _CALLS_AHEAD:
                    self._receive(*calls.popleft())
                calls.append((self._call(stub, span), buffer))
            while calls:
                self._receive(*calls.popleft())
        except BaseException as error:
            for call, _ in calls:
                call.cancel()
            self.forget(holder.holder_id)
            if isinstance(error, grpc.RpcError):
                self._raise(error, holder)
            raise

    def _call(self, stub: TensorsStub, span: ByteSpan) -> Any:
        request = FetchRequest(block=span.block, offset=span.offset, num_bytes=span.num_bytes)
        return stub.Fetch(request, metadata=((AUTHORIZATION, f"Bearer {self._token}"),))

    def _receive(self, call: Any, target: memoryview) -> None:
        sink = ChunkSink(target)
        try:
            with self._watchdog.watching(call):
                for chunk in call:
                    self._watchdog.saw_progress()
                    sink.take(chunk)
            sink.finish()
        except BaseException:
            call.cancel()
            raise

    def _raise(self, error: grpc.RpcError, holder: TensorHolder) -> NoReturn:
        where = f"holder {holder.holder_id!r} at {holder.grpc_address}"
        if self._watchdog.has_barked:
            raise TensorLostError(f"nothing came from {where} for {self._config.peer_timeout_s} s") from error
        status, text = error.code(), error.details()  # pyright: ignore[reportAttributeAccessIssue]
        is_lost = status in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE)
        raise (TensorLostError if is_lost else TransportError)(f"{where}: {status.name}: {text}") from error

    def forget(self, holder_id: str) -> None:
        """Closes the connection to a holder."""
        _, channel = self._channels.pop(holder_id, ("", None))
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Closes all connections."""
        for holder_id in list(self._channels):
            self.forget(holder_id)
        self._watchdog.close()

    def _channel_of(self, holder: TensorHolder) -> grpc.Channel:
        address, channel = self._channels.get(holder.holder_id, ("", None))
        if channel is not None and address == holder.grpc_address:
            return channel
        self.forget(holder.holder_id)
        channel = self._connected(holder.grpc_address)
        self._channels[holder.holder_id] = (holder.grpc_address, channel)
        return channel

    def _connected(self, address: str) -> grpc.Channel:
        has_tls = self._root_certificates is not None
        _check_host(address.rpartition(":")[0], has_tls=has_tls, allow_insecure=self._allow_insecure)
        options = _options(
            MAX_CHUNK_BYTES + _FRAMING_BYTES,
            ("grpc.enable_http_proxy", 0),  # a proxy could read the traffic
            ("grpc.use_local_subchannel_pool", 1),  # a new channel starts without an old one's waiting time after a failure
        )
        if not has_tls:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(self._root_certificates), options)


class _Watchdog:
    """Cancels a call from which nothing has come for `timeout_s`: gRPC limits the time of calls, but not of their next message.

    Its thread starts with the first watched call. While calls follow one another it wakes up once per `timeout_s`.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._call: Any = None
        self._progress_s = 0.0
        self._is_idle = False
        self._is_closed = False
        self.has_barked = False

    @contextlib.contextmanager
    def watching(self, call: Any) -> Iterator[None]:
        """Watches a call meanwhile."""
        with self._changed:
            self._call, self._progress_s, self.has_barked = call, time.monotonic(), False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dyorc-grpc-watchdog", daemon=True)
                self._thread.start()
            if self._is_idle:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._call = None

    def saw_progress(self) -> None:
        """Notes that something has come from the call."""
        self._progress_s = time.monotonic()

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with self._changed:
            while not self._is_closed:
                left_s = self._progress_s + self._timeout_s - time.monotonic()
                if self._call is not None and left_s <= 0:
                    self.has_barked = True
                    self._call.cancel()
                    self._call = None
                self._is_idle = self._call is None and left_s <= 0
                self._changed.wait(None if self._is_idle else max(left_s, 0))


def _check_token(token: str) -> None:
    if not token:
        raise TransportError("the gRPC tensor path needs the cluster's token, and it is empty")
    if not (token.isascii() and token.isprintable()):
        raise TransportError("the cluster's token has characters that cannot be sent, expected printable ASCII")


def _check_host(host: str, *, has_tls: bool, allow_insecure: bool) -> None:
    if not has_tls and not allow_insecure and not is_loopback(host):
        raise TransportError(f"{host!r} is not a loopback address: there the gRPC tensor path needs TLS, or allow_insecure")


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode(errors="replace") if isinstance(value, str) else value


def _options(max_receive_bytes: int, *others: tuple[str, int]) -> list[tuple[str, int]]:
    return [("grpc.max_receive_message_length", max_receive_bytes), ("grpc.max_send_message_length", -1), *others]
