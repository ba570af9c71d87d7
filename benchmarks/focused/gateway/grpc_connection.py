"""The least of HTTP/2 that one closed-loop gRPC client needs: one unary call at a time, laid out beforehand.

The load generator shares the machine with the server that it measures. gRPC's own Python client takes more time for a call than
the servers do, so it would be the thing that is measured; this one takes about as long as the HTTP client beside it.

Source: RFC 9113 (frames), RFC 7541 (header compression), gRPC over HTTP/2 (doc/PROTOCOL-HTTP2.md of grpc/grpc).
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 0x1, 0x4, 0x1
_FRAME_HEAD_BYTES = 9
_MESSAGE_HEAD_BYTES = 5
_MAX_WINDOW_BYTES = 2**31 - 1
_FIRST_WINDOW_BYTES = 65_535
_RECEIVE_BYTES = 65_536
_POST_AND_HTTP = b"\x83\x86"  # the static table's :method POST and :scheme http


class GrpcError(Exception):
    """The server ended a connection or a call, or sent something else than an answer."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _text(text: bytes) -> bytes:
    """A string literal of header compression, of less than 127 bytes, as it is."""
    return bytes((len(text),)) + text


@dataclass(frozen=True, slots=True)
class Call:
    """What is the same for all requests of a connection.

    Attributes:
        first_headers: Of the first request; puts all that is not in the static table into the dynamic one.
        headers: Of those that follow.
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


def message(raw: bytes) -> bytes:
    """A message as it lies in DATA frames, not compressed."""
    return b"\0" + len(raw).to_bytes(4) + raw


class Connection:
    """One client: sends a request, and takes what comes until its answer is complete.

    Args:
        opened: A connected socket that blocks.
    """

    def __init__(self, opened: socket.socket, call: Call) -> None:
        self.socket = opened
        self.index = 0
        self.sent_at_ns = 0
        self._call = call
        self._next_stream = 1
        self._window_bytes = _FIRST_WINDOW_BYTES
        self._waiting: tuple[int, bytes] | None = None
        self._received = b""
        self._answer: list[bytes] = []
        settings = struct.pack(">HIHI", 2, 0, 4, _MAX_WINDOW_BYTES)  # no pushes, and room for all answers
        grow = struct.pack(">I", _MAX_WINDOW_BYTES - _FIRST_WINDOW_BYTES)
        opened.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW_UPDATE, 0, 0, grow))

    def send(self, body: bytes) -> None:
        """Sends a request: a message as `message` lays it out, of at most 16 KiB."""
        headers = self._call.headers if self._next_stream > 1 else self._call.first_headers
        stream = self._next_stream
        self._next_stream += 2
        self._answer = []
        head = _frame(_HEADERS, _END_HEADERS, stream, headers)
        if len(body) > self._window_bytes:
            self.socket.sendall(head)
            self._waiting = stream, body
            return
        self._window_bytes -= len(body)
        self.socket.sendall(head + _frame(_DATA, _END_STREAM, stream, body))

    def receive(self) -> bytes | None:
        """Takes what has come in; gives the answer's message if it is complete.

        Raises:
            GrpcError: If it will not be.
        """
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise GrpcError(f"the server closed a connection after {b''.join(self._answer)[:200]!r}")
        data = self._received + data
        at = 0
        is_over = False
        while len(data) - at >= _FRAME_HEAD_BYTES:
            end = at + _FRAME_HEAD_BYTES + int.from_bytes(data[at : at + 3])
            if end > len(data):
                break
            is_over |= self._take(data[at + 3], data[at + 4], data[at + _FRAME_HEAD_BYTES : end])
            at = end
        self._received = data[at:]
        return self._message() if is_over else None

    def _take(self, kind: int, flags: int, payload: bytes) -> bool:
        """One frame; says whether it ends the answer."""
        if kind == _DATA:
            self._answer.append(payload)
            return bool(flags & _END_STREAM)
        if kind == _HEADERS:
            return bool(flags & _END_STREAM)
        if kind in (_RST_STREAM, _GOAWAY):
            raise GrpcError(f"the server ended a call or the connection: frame {kind}, {payload[:200]!r}")
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            self.socket.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _WINDOW_UPDATE:
            self._grow(int.from_bytes(payload))
        return False

    def _grow(self, num_bytes: int) -> None:
        # Those of single calls are counted as well: a call's own window is never short, so the sum is only a bound.
        self._window_bytes = min(self._window_bytes + num_bytes, _MAX_WINDOW_BYTES)
        if self._waiting is not None and len(self._waiting[1]) <= self._window_bytes:
            stream, body = self._waiting
            self._waiting = None
            self._window_bytes -= len(body)
            self.socket.sendall(_frame(_DATA, _END_STREAM, stream, body))

    def _message(self) -> bytes:
        raw = b"".join(self._answer)
        if len(raw) < _MESSAGE_HEAD_BYTES or raw[0] != 0 or int.from_bytes(raw[1:5]) != len(raw) - _MESSAGE_HEAD_BYTES:
            raise GrpcError(f"an answer without its message: {raw[:200]!r}")
        return raw[_MESSAGE_HEAD_BYTES:]
