"""A target of the load generator that speaks only as much of gRPC as one closed loop needs: a unary call at a time.

gRPC's own Python client takes 100 to 400 us for a call. That is more than the servers take, which are measured on the same cores,
so the result would be about the client. This one takes about as long as the load generator's HTTP client. It is not a general
client: requests have at most 16 KiB, there is no TLS, and it does not read error texts.

Source: RFC 9113 (frames), RFC 7541 (header compression), gRPC over HTTP/2 (doc/PROTOCOL-HTTP2.md of grpc/grpc).
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Self, cast

from loadgen.pool import Pool, Tensors
from loadgen.targets.base import RawAnswer, RequestFailedError, TargetSpec
from loadgen.targets.grpc import METHOD, decode_response, encode_request
from loadgen.targets.layout import with_batch_dim, without_batch_dim

PROTOCOL = f"{__name__}:make_target"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 0x1, 0x4, 0x1
_FRAME_HEAD_BYTES = 9
_MESSAGE_HEAD_BYTES = 5
_MAX_FRAME_BYTES = 16_384
_MAX_WINDOW_BYTES = 2**31 - 1
_FIRST_WINDOW_BYTES = 65_535
_POST_AND_HTTP = b"\x83\x86"  # the static table's :method POST and :scheme http


def make_target(spec: TargetSpec, pool: Pool) -> LightGrpcTarget:
    """Makes the target; `TargetSpec.protocol` names this function."""
    return LightGrpcTarget(spec, pool)


class LightGrpcTarget:
    """A client with a connection for each request in flight.

    Raises:
        ValueError: If a request of the pool cannot be written, or is too long.
    """

    def __init__(self, spec: TargetSpec, pool: Pool) -> None:
        self._has_batch_dim = spec.has_batch_dim
        self._host, _, port = spec.url.rpartition(":")
        self._port = int(port)
        self._call = Call.of(spec.url, METHOD)
        inputs = [with_batch_dim(tensors) for tensors in pool.inputs] if spec.has_batch_dim else pool.inputs
        self._requests = [_message(encode_request(spec.model, tensors)) for tensors in inputs]
        if (longest := max(map(len, self._requests))) > _MAX_FRAME_BYTES:
            raise ValueError(f"a request has {longest} bytes, expected at most {_MAX_FRAME_BYTES}")
        self._idle: list[Connection] = []
        self._all: list[Connection] = []

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._idle.append(await self._open())
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in self._all:
            connection.close()

    async def _open(self) -> Connection:
        try:
            _, connection = await self._loop.create_connection(lambda: Connection(self._call), self._host, self._port)
        except OSError as error:
            raise RequestFailedError(f"no connection to {self._host}:{self._port}: {type(error).__name__}") from error
        self._all.append(connection)
        return connection

    async def infer(self, index: int) -> RawAnswer:
        while self._idle and self._idle[-1].is_closing:
            self._idle.pop()
        connection = self._idle.pop() if self._idle else await self._open()
        answer: asyncio.Future[bytes] = self._loop.create_future()
        connection.send(self._requests[index], answer)
        reply = await answer
        self._idle.append(connection)
        return reply

    def decode(self, answer: RawAnswer) -> Tensors:
        tensors = decode_response(answer) if isinstance(answer, bytes) else answer
        return without_batch_dim(tensors) if self._has_batch_dim else tensors


@dataclass(frozen=True, slots=True)
class Call:
    """What is the same for all requests of a connection.

    Attributes:
        first_headers: The headers of the first request; they put everything that is not in the static table into the dynamic one.
        headers: The headers of later requests.
    """

    first_headers: bytes
    headers: bytes

    @classmethod
    def of(cls, authority: str, path: str) -> Call:
        """Calls of one method of one server."""
        added = [b"\x44" + _text(path.encode()), b"\x41" + _text(authority.encode())]  # names of the static table, new values
        added += [b"\x5f" + _text(b"application/grpc"), b"\x40" + _text(b"te") + _text(b"trailers")]
        # The newest entry of the dynamic table has index 62.
        indexed = bytes(0x80 | (62 + at) for at in reversed(range(len(added))))
        return cls(_POST_AND_HTTP + b"".join(added), _POST_AND_HTTP + indexed)


class Connection(asyncio.Protocol):
    """Carries one call at a time: sends a request and receives bytes until its answer is complete."""

    _transport: asyncio.Transport

    def __init__(self, call: Call) -> None:
        self._call = call
        self._next_stream = 1
        self._window_bytes = _FIRST_WINDOW_BYTES
        self._waiting = b""
        self._received = b""
        self._message: list[bytes] = []
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        settings = struct.pack(">HIHI", 2, 0, 4, _MAX_WINDOW_BYTES)  # no pushes, and room for all answers
        grow = struct.pack(">I", _MAX_WINDOW_BYTES - _FIRST_WINDOW_BYTES)
        self._transport.write(_PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW_UPDATE, 0, 0, grow))

    @property
    def is_closing(self) -> bool:
        """Whether no other request can be sent."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Drops the connection at once."""
        self._transport.abort()

    def send(self, body: bytes, answer: asyncio.Future[bytes]) -> None:
        """Sends a request. The future gets its answer or its error."""
        headers = self._call.headers if self._next_stream > 1 else self._call.first_headers
        stream = self._next_stream
        self._next_stream += 2
        self._answer, self._message = answer, []
        head, data = _frame(_HEADERS, _END_HEADERS, stream, headers), _frame(_DATA, _END_STREAM, stream, body)
        if len(body) > self._window_bytes:
            self._waiting = data
            data = b""
        else:
            self._window_bytes -= len(body)
        self._transport.write(head + data)

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        at = 0
        while len(data) - at >= _FRAME_HEAD_BYTES:
            end = at + _FRAME_HEAD_BYTES + int.from_bytes(data[at : at + 3])
            if end > len(data):
                break
            self._take(data[at + 3], data[at + 4], data[at + _FRAME_HEAD_BYTES : end])
            at = end
        self._received = data[at:]

    def _take(self, kind: int, flags: int, payload: bytes) -> None:
        if kind in (_DATA, _HEADERS):
            if kind == _DATA:
                self._message.append(payload)
            if flags & _END_STREAM:
                self._finish()
        elif kind in (_RST_STREAM, _GOAWAY):
            self._fail(f"the server ended a call or the connection: frame {kind}")
            self._transport.abort()
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            self._transport.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _WINDOW_UPDATE:
            self._grow(int.from_bytes(payload))

    def _grow(self, num_bytes: int) -> None:
        # Updates of single calls' windows are counted as well. A call's own window is never short, so the sum is only a bound.
        self._window_bytes = min(self._window_bytes + num_bytes, _MAX_WINDOW_BYTES)
        if self._waiting and len(self._waiting) - _FRAME_HEAD_BYTES <= self._window_bytes:
            self._window_bytes -= len(self._waiting) - _FRAME_HEAD_BYTES
            self._transport.write(self._waiting)
            self._waiting = b""

    def _finish(self) -> None:
        raw = b"".join(self._message)
        if len(raw) < _MESSAGE_HEAD_BYTES or raw[0] != 0 or int.from_bytes(raw[1:5]) != len(raw) - _MESSAGE_HEAD_BYTES:
            self._fail(f"an answer of {len(raw)} bytes without its message")
            return
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(raw[_MESSAGE_HEAD_BYTES:])

    def _fail(self, text: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(RequestFailedError(text))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the server closed the connection without an answer")


def _message(raw: bytes) -> bytes:
    """Returns a message as DATA frames contain it, not compressed."""
    return b"\0" + len(raw).to_bytes(4) + raw


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _text(text: bytes) -> bytes:
    """Returns a string of fewer than 127 bytes as an uncompressed literal of header compression."""
    return bytes((len(text),)) + text
