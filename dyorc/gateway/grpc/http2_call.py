# pyright: basic
# grpcio ships no types.
"""One gRPC call on a connection of our own: its messages and metadata, and what handlers use of grpc.aio's context.

Source: gRPC over HTTP/2 (doc/PROTOCOL-HTTP2.md of grpc/grpc).
"""

import asyncio
import base64
import time
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol
from urllib.parse import quote

import grpc

from dyorc.gateway.grpc.call_heads import CallHead
from dyorc.gateway.grpc.inference_calls import EOF

_HEAD_BYTES = 5
_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}
_PLAIN_ASCII = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_BINARY = "-bin"

Metadata = Sequence[tuple[str, str | bytes]]


class CallError(Exception):
    """Ends a call with a status. Handlers raise it by `abort`."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata = ()) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.trailing_metadata = trailing_metadata

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """The trailers that tell the client."""
        return trailers_of(self.code, self.details, self.trailing_metadata)


class CallStream(Protocol):
    """The stream of a call."""

    def acknowledge(self, num_bytes: int) -> None:
        """Lets the client send so many more bytes."""
        ...

    async def send_message(self, message: bytes) -> None:
        """Sends a message, once the client has read most of those before it."""
        ...


class Http2Call:
    """A call. Also the context that its handler gets.

    Args:
        head: What its headers say.
        deadline_s: When it has to be answered, on the monotonic clock; None: at no time.
        max_message_bytes: The largest message that it may send.
        is_streaming: Whether its messages are read one by one, and held back by the client meanwhile.
    """

    def __init__(
        self, stream: CallStream, head: CallHead, deadline_s: float | None, max_message_bytes: int, *, is_streaming: bool
    ) -> None:
        self._stream = stream
        self._head = head
        self._max_message_bytes = max_message_bytes
        self._is_streaming = is_streaming
        self._buffer = bytearray()
        self._num_expected = -1
        self._is_compressed = False
        self._messages: deque[bytes] = deque()
        self._num_unacknowledged = 0
        self._arrived: asyncio.Event | None = None  # set when more has come, if a handler waits for that
        self._is_over = False
        self._encoding = head.encoding
        self.deadline_s = deadline_s
        self.trailing_metadata: Metadata = ()

    # From the connection

    def feed(self, data: bytes) -> None:
        """Takes bytes of its messages.

        Raises:
            CallError: If a message is too large, or cannot be decompressed.
        """
        self._num_unacknowledged += len(data)
        is_first = not self._buffer and self._num_expected < 0
        if is_first and (message := whole_message(data, self._max_message_bytes)) is not None:
            self._messages.append(message)
        else:
            self._buffer += data
            while self._take_message():
                pass
        if not (self._is_streaming and self._messages):
            self._acknowledge()
        self._wake_reader()

    def end(self) -> None:
        """Notes that no further message comes."""
        self._is_over = True
        self._wake_reader()

    def ready_message(self) -> bytes | None:
        """Returns the message of a unary call, which stays here; None if `only_message` fails."""
        messages = self._messages
        return messages[0] if len(messages) == 1 and not self._buffer and self._num_expected < 0 else None

    def only_message(self) -> bytes:
        """Returns the message of a unary call.

        Raises:
            CallError: If there is none, or more than one.
        """
        if len(self._messages) != 1 or self._buffer or self._num_expected >= 0:
            raise CallError(grpc.StatusCode.INTERNAL, "the request has to be one whole message")
        return self._messages.popleft()

    def _wake_reader(self) -> None:
        if self._arrived is not None:
            self._arrived.set()

    def _take_message(self) -> bool:
        if self._num_expected < 0:
            if len(self._buffer) < _HEAD_BYTES:
                return False
            self._is_compressed, self._num_expected = bool(self._buffer[0]), int.from_bytes(self._buffer[1:_HEAD_BYTES])
            if self._num_expected > self._max_message_bytes:
                self._refuse_size(self._num_expected)
            del self._buffer[:_HEAD_BYTES]
        if len(self._buffer) < self._num_expected:
            return False
        message = bytes(self._buffer[: self._num_expected])
        del self._buffer[: self._num_expected]
        self._num_expected = -1
        self._messages.append(self._decompress(message) if self._is_compressed else message)
        return True

    def _decompress(self, message: bytes) -> bytes:
        if (bits := _WINDOW_BITS.get(self._encoding)) is None:
            raise CallError(
                grpc.StatusCode.UNIMPLEMENTED, f"grpc-encoding is {self._encoding.decode('latin-1')!r}, expected gzip or deflate",
                [("grpc-accept-encoding", "identity,deflate,gzip")],
            )  # fmt: skip
        decompressor = zlib.decompressobj(bits)
        try:
            whole = decompressor.decompress(message, self._max_message_bytes + 1)
        except zlib.error as error:
            raise CallError(grpc.StatusCode.INTERNAL, f"the message is not {self._encoding.decode()}: {error}") from None
        if len(whole) > self._max_message_bytes:
            self._refuse_size(len(whole))
        if not decompressor.eof or decompressor.unused_data:
            fault = "has more bytes behind it" if decompressor.eof else "ends early"
            raise CallError(grpc.StatusCode.INTERNAL, f"the message is not {self._encoding.decode()}: it {fault}")
        return whole

    def _refuse_size(self, num_bytes: int) -> NoReturn:
        text = f"Received message larger than max ({num_bytes} vs. {self._max_message_bytes})"  # as grpcio says it
        raise CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    def _acknowledge(self) -> None:
        if num_bytes := self._num_unacknowledged:
            self._num_unacknowledged = 0
            self._stream.acknowledge(num_bytes)

    # What handlers use, as of grpc.aio's context

    def invocation_metadata(self) -> Metadata:
        """Returns the metadata of the request."""
        return self._head.metadata

    def time_remaining(self) -> float | None:
        """Returns how long the call may still take, in seconds; None without a deadline."""
        return seconds_until(self.deadline_s)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Sets what follows a good answer."""
        self.trailing_metadata = metadata

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """Ends the call with a status.

        Raises:
            CallError: Always.
        """
        raise CallError(code, details, trailing_metadata)

    async def read(self) -> Any:
        """Returns the next message; grpc.aio's `EOF` after the last."""
        while not self._messages:
            if self._is_over:
                return EOF
            self._arrived = asyncio.Event()
            await self._arrived.wait()
        message = self._messages.popleft()
        if not self._messages:
            self._acknowledge()
        return message

    async def write(self, message: bytes) -> None:
        """Sends a message."""
        await self._stream.send_message(message)


def trailers_of(code: grpc.StatusCode, details: str = "", metadata: Metadata = ()) -> list[tuple[bytes, bytes]]:
    """Returns the trailers of an answer with this status."""
    trailers = [(b"grpc-status", str(code.value[0]).encode())]
    if details:
        trailers.append((b"grpc-message", quote(details, safe=_PLAIN_ASCII).encode()))
    for name, value in metadata:
        raw = base64.b64encode(value if isinstance(value, bytes) else value.encode()) if name.endswith(_BINARY) else value
        trailers.append((name.encode(), raw if isinstance(raw, bytes) else raw.encode("ascii", "replace")))
    return trailers


def whole_message(data: bytes, max_bytes: int) -> bytes | None:
    """Returns the message that some bytes are, as most are; None if they are something else, or compressed, or too long."""
    size = len(data) - _HEAD_BYTES
    if not 0 <= size <= max_bytes or data[0] or int.from_bytes(data[1:_HEAD_BYTES]) != size:
        return None
    return data[_HEAD_BYTES:]


def seconds_until(deadline_s: float | None) -> float | None:
    """Returns how long it is until then, at least 0; None without a deadline."""
    return None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
