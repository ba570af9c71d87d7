"""The ZeroMQ tier: bytes of blocks from one process to another, on any node of the cluster.

A holder runs a `ZmqTensorServer`, a receiver has a `ZmqTier` in each thread that fetches. The receiver asks for chunks, so it is
never sent more than it wants: its credit is the number of chunks requested and not received, and it asks for the next when one
has come.

A request is one frame, a reply two: headers in msgpack whose first field is the protocol's version, then the chunk's raw bytes:

    request   [1, request id, block, offset, num_bytes]
    reply     [1, request id, outcome, text]    num_bytes raw bytes, or none if the outcome is not SENT

Request ids are never used twice by a tier, and a socket on which a fetch failed is closed: no late reply is mistaken for another.
"""

import enum
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Self

import msgspec
import structlog
import zmq

from dyorc.config import TransportConfig
from dyorc.errors import TensorLostError, TransportError
from dyorc.system.log_throttle import LogThrottle
from dyorc.transport.column_codec import Frame
from dyorc.transport.tiers import MAX_COUNT, BlockSource, ByteSpan, TensorHolder, check_buffers
from dyorc.transport.zmq_link import terminate_context
from dyorc.transport.zmq_security import ClusterKeys, check_address, secure_client, secure_server

_log = structlog.get_logger("dyorc.transport")

_HEADER_LIMIT_BYTES = 1024
"""No header is larger; ZeroMQ disconnects a peer that sends a larger frame where only headers are expected."""

_MAX_TEXT = 500
"""Characters of an error's text in a reply."""

_NOWHERE = memoryview(bytearray())
"""Receives frames that are discarded."""

_HEARTBEAT_RATIO = 3
"""An idle connection is closed after this many times `peer_timeout_s`, so that the next fetch starts on a fresh one."""


class ReplyOutcome(enum.IntEnum):
    """The result of a request for a chunk."""

    SENT = 0
    LOST = 1
    REFUSED = 2


_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class ChunkRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Receiver: send me these bytes of a block."""

    version: Literal[1]
    request: _Count
    block: _Count
    offset: _Count
    num_bytes: _Count


class ChunkReply(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Holder: the result of a request."""

    version: Literal[1]
    request: _Count
    outcome: ReplyOutcome
    text: str = ""


_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(ChunkRequest)
_reply_decoder = msgspec.msgpack.Decoder(ChunkReply)
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_request(frame: Frame) -> ChunkRequest:
    """Reads a request.

    Raises:
        TransportError: If it is not one of this version.
    """
    try:
        return _request_decoder.decode(frame)
    except _DECODE_ERRORS as error:
        raise TransportError(f"{len(frame)} bytes are not a request for a chunk: {error}") from error


def decode_reply(frame: Frame) -> ChunkReply:
    """Reads the header of a reply.

    Raises:
        TransportError: If it is not one of this version.
    """
    try:
        return _reply_decoder.decode(frame)
    except _DECODE_ERRORS as error:
        raise TransportError(f"{len(frame)} bytes are not a header of a chunk: {error}") from error


def answer(source: BlockSource, frame: Frame, max_bytes: int) -> tuple[bytes, zmq.Frame | bytes]:
    """Returns header and body of the reply to a request.

    Args:
        max_bytes: No larger chunk is sent.

    Raises:
        TransportError: If it is not a request; then there is nothing to answer.
    """
    request = decode_request(frame)
    try:
        outcome, text, body = ReplyOutcome.SENT, "", _copied(source, request, max_bytes)
    except TensorLostError as error:
        outcome, text, body = ReplyOutcome.LOST, str(error), b""
    except TransportError as error:
        outcome, text, body = ReplyOutcome.REFUSED, str(error), b""
    except Exception as error:
        _log.exception("chunk_not_read", block=request.block, offset=request.offset, num_bytes=request.num_bytes)
        outcome, text, body = ReplyOutcome.REFUSED, f"{type(error).__name__}: {error}", b""
    return _encoder.encode(ChunkReply(1, request.request, outcome, text[:_MAX_TEXT])), body


def _copied(source: BlockSource, request: ChunkRequest, max_bytes: int) -> zmq.Frame | bytes:
    """Returns the chunk in ZeroMQ's own memory: before it is sent, the block's place may have been overwritten."""
    if request.num_bytes > max_bytes:
        raise TransportError(f"a chunk of {request.num_bytes} bytes was asked for, at most {max_bytes} are sent")
    body = zmq.Frame(source.read_only(request.block, request.offset, request.num_bytes), copy=True)
    if not source.is_intact(request.block):
        raise TensorLostError(f"block {request.block} was freed while it was read")
    return body


class ZmqTensorServer:
    """Sends bytes of its process's blocks on request, in a separate thread while entered.

    Args:
        source: What it reads from.
        host: Where to listen: an IP address of this node, e.g. ``10.0.0.7``. The port is a free one.
        keys: The cluster's; None only if `host` is loopback.

    Attributes:
        address: Where it listens, e.g. ``tcp://10.0.0.7:4711``; set once entered.
    """

    def __init__(self, source: BlockSource, host: str, config: TransportConfig, keys: ClusterKeys | None) -> None:
        self._source = source
        self._bind_address = f"tcp://{host}:*"
        self._config = config
        self._keys = keys
        self._dropped = LogThrottle(_log, "request_dropped")
        self.address = ""

    def __enter__(self) -> Self:
        """Starts listening.

        Raises:
            TransportError: If `host` needs keys and there are none, or cannot be listened on.
        """
        check_address(self._bind_address, self._keys)
        self._context = zmq.Context()
        socket = self._context.socket(zmq.ROUTER)
        try:
            self._bind(socket)
        except BaseException:
            socket.close(0)
            terminate_context(self._context)
            raise
        self.address = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._thread = threading.Thread(target=self._serve, args=(socket,), name="dyorc-zmq-tensors", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        terminate_context(self._context)  # wakes the thread, and returns when it has closed its socket
        self._thread.join()

    def _bind(self, socket: "zmq.Socket[bytes]") -> None:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, _HEADER_LIMIT_BYTES)
        # The receivers' credit is the limit. A limit here loses replies that are within it: ZeroMQ learns late what has left.
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.IPV6, "[" in self._bind_address)
        try:
            secure_server(self._context, socket, self._bind_address, self._keys)
            socket.bind(self._bind_address)
        except zmq.ZMQError as error:
            raise TransportError(f"cannot listen on {self._bind_address}: {error}") from error

    def _serve(self, socket: "zmq.Socket[bytes]") -> None:
        try:
            while True:
                self._answer_next(socket)
        except zmq.ContextTerminated:
            pass
        finally:
            socket.close(0)

    def _answer_next(self, socket: "zmq.Socket[bytes]") -> None:
        peer, *frames = socket.recv_multipart()
        try:
            if len(frames) != 1:
                raise TransportError(f"a request has {len(frames)} frames, expected 1")
            header, body = answer(self._source, frames[0], self._config.chunk_bytes)
            socket.send(peer, zmq.SNDMORE)
            socket.send(header, zmq.SNDMORE)
            socket.send(body)
        except TransportError as error:
            self._dropped.report(address=self.address, error=str(error))


class Assembly:
    """A fetch without its socket: what to ask for next, and where it goes.

    Args:
        holder: The process that is asked; for errors.
        spans: What is wanted.
        into: Where it goes: a buffer of the same length for each span.
        chunk_bytes: Most bytes to request at once.
        first_id: Id of the first request; the others count up from it.

    Attributes:
        next_id: Id of the next request.
    """

    def __init__(
        self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview], chunk_bytes: int, first_id: int
    ) -> None:
        self._holder = holder
        self._chunks = _chunks(spans, into, chunk_bytes)
        self._open: dict[int, tuple[int, memoryview]] = {}
        self.next_id = first_id

    @property
    def is_complete(self) -> bool:
        """Whether everything requested has come; since requests follow replies, that is all that is wanted."""
        return not self._open

    def next_request(self) -> bytes | None:
        """Returns the next request to send; None if there are no more."""
        chunk = next(self._chunks, None)
        if chunk is None:
            return None
        block, offset, target = chunk
        request = _encoder.encode(ChunkRequest(1, self.next_id, block, offset, len(target)))
        self._open[self.next_id] = (block, target)
        self.next_id += 1
        return request

    def target_of(self, header: Frame) -> memoryview | None:
        """Returns where the body behind a reply's header goes; None if it answers a request of another fetch.

        Raises:
            TensorLostError: If it says that the block does not exist.
            TransportError: If it is not a header, or says that the request was refused.
        """
        reply = decode_reply(header)
        block, target = self._open.pop(reply.request, (0, None))
        if target is None or reply.outcome is ReplyOutcome.SENT:
            return target
        error = TensorLostError if reply.outcome is ReplyOutcome.LOST else TransportError
        raise error(f"holder {self._holder.holder_id!r}, block {block}: {reply.text}")


def _chunks(spans: Sequence[ByteSpan], into: Sequence[memoryview], chunk_bytes: int) -> Iterator[tuple[int, int, memoryview]]:
    """Yields block, offset and target of each chunk. An empty span is one empty chunk: its block must exist, too."""
    for span, target in zip(spans, into, strict=True):
        for at in range(0, max(span.num_bytes, 1), chunk_bytes):
            yield span.block, span.offset + at, target[at : at + chunk_bytes]


class ZmqTier:
    """Fetches from other processes' `ZmqTensorServer`s. Blocking; each thread has its own.

    Args:
        keys: The cluster's; None only if all holders are reached over loopback.
    """

    name = "zmq"

    def __init__(self, config: TransportConfig, keys: ClusterKeys | None) -> None:
        self._config = config
        self._keys = keys
        self._context = zmq.Context()
        self._sockets: dict[str, tuple[str, zmq.Socket[bytes]]] = {}
        self._next_id = 1

    def reaches(self, holder: TensorHolder) -> bool:
        """Returns whether it has a server."""
        return bool(holder.zmq_address)

    def fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        """Copies the bytes of `spans` into buffers of the same lengths.

        Raises:
            TensorLostError: If the holder does not have a block, or no longer, or nothing came for `peer_timeout_s`.
            TransportError: If the answer is malformed, or the holder cannot be connected to securely.
        """
        assembly = Assembly(holder, spans, check_buffers(spans, into), self._config.chunk_bytes, self._next_id)
        try:
            self._run(assembly, self._socket_of(holder), holder)
        except BaseException as error:
            self.forget(holder.holder_id)
            if isinstance(error, zmq.Again):
                raise _silent(holder, self._config) from error
            if isinstance(error, zmq.ZMQError):
                raise TransportError(f"holder {holder.holder_id!r} at {holder.zmq_address}: {error}") from error
            raise
        finally:
            self._next_id = assembly.next_id

    def _run(self, assembly: Assembly, socket: "zmq.Socket[bytes]", holder: TensorHolder) -> None:
        for _ in range(self._config.max_chunks_in_flight):
            request = assembly.next_request()
            if request is None:
                break
            socket.send(request)
        progress_s = time.monotonic()
        while not assembly.is_complete:
            is_progress = _receive(assembly, socket)
            now_s = time.monotonic()
            if not is_progress:
                if now_s - progress_s > self._config.peer_timeout_s:
                    raise _silent(holder, self._config)
                continue
            progress_s = now_s
            request = assembly.next_request()
            if request is not None:
                socket.send(request)

    def forget(self, holder_id: str) -> None:
        """Closes the connection to a holder."""
        _, socket = self._sockets.pop(holder_id, ("", None))
        if socket is not None:
            socket.close(0)

    def close(self) -> None:
        """Closes all connections."""
        for holder_id in list(self._sockets):
            self.forget(holder_id)
        terminate_context(self._context)

    def _socket_of(self, holder: TensorHolder) -> "zmq.Socket[bytes]":
        address, socket = self._sockets.get(holder.holder_id, ("", None))
        if socket is not None and address == holder.zmq_address:
            return socket
        self.forget(holder.holder_id)
        check_address(holder.zmq_address, self._keys)
        socket = self._context.socket(zmq.DEALER)
        self._sockets[holder.holder_id] = (holder.zmq_address, socket)
        self._connect(socket, holder.zmq_address)
        return socket

    def _connect(self, socket: "zmq.Socket[bytes]", address: str) -> None:
        timeout_ms = max(1, int(self._config.peer_timeout_s * 1000))
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, timeout_ms)
        socket.setsockopt(zmq.SNDHWM, 0)  # the credit is the limit, in both directions
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, self._config.chunk_bytes + _HEADER_LIMIT_BYTES)
        socket.setsockopt(zmq.HEARTBEAT_IVL, timeout_ms)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_RATIO * timeout_ms)
        socket.setsockopt(zmq.HEARTBEAT_TTL, _HEARTBEAT_RATIO * timeout_ms)
        socket.setsockopt(zmq.IPV6, "[" in address)
        secure_client(socket, address, self._keys)
        socket.connect(address)


def _silent(holder: TensorHolder, config: TransportConfig) -> TensorLostError:
    return TensorLostError(f"nothing came from holder {holder.holder_id!r} at {holder.zmq_address} for {config.peer_timeout_s} s")


def _receive(assembly: Assembly, socket: "zmq.Socket[bytes]") -> bool:
    """Handles one reply; False if it belongs to another fetch. Raises `zmq.Again` if none comes in time."""
    target = assembly.target_of(socket.recv())
    if not socket.getsockopt(zmq.RCVMORE):
        raise TransportError("a reply has 1 frame, expected 2")
    num_bytes = socket.recv_into(_NOWHERE if target is None else target)
    if socket.getsockopt(zmq.RCVMORE):
        raise TransportError("a reply has more than 2 frames")
    if target is not None and num_bytes != len(target):
        raise TransportError(f"a chunk of {num_bytes} bytes came, expected {len(target)}")
    return target is not None
