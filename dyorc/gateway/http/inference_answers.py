"""Answers of the inference routes on their way out: whole, or in parts as these become ready (server-sent events, or frames).

Each part is requested only when the one before it has been written. So a client that reads slowly slows its workflow down, and a
client that goes away stops it.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol, TypeAlias, TypeVar

import structlog
from starlette.types import Send

from dyorc.errors import DyOrcError, UnsupportedError
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.http_errors import error_body, retry_headers, status_of
from dyorc.gateway.http.compression import Encoding, compress
from dyorc.gateway.http.heads import RequestHead
from dyorc.gateway.request_ids import Ids
from dyorc.protocol import media_types
from dyorc.protocol.header_names import JSON_LENGTH, Header
from dyorc.protocol.media_types import FRAME_LENGTHS

JSON: Header = (b"content-type", media_types.JSON.encode())
_BINARY: Header = (b"content-type", media_types.TENSORS.encode())
_JSON_LENGTH = JSON_LENGTH.encode()

VARY = b"vary: accept-encoding\r\n"
"""In answers to clients that say which encodings they accept."""

_JOIN_BYTES = 64 * 2**10
"""Shorter answers are joined and written at once. Joining longer ones would copy their tensors once more."""
_PIECE_BYTES = 256 * 2**10
"""After each piece of this size, the writer waits until the client has read most of the earlier ones. A body written as a whole
would fill the transport's buffers, where nothing waits for the client."""


async def write_answer(
    send: Send, head: RequestHead, parts: Sequence[bytes | memoryview], json_bytes: int | None, kind: Header = JSON
) -> None:
    """Writes the body of an inference response, compressed on request.

    Args:
        json_bytes: How long its JSON is, if tensors follow it.
        kind: Its media type, if none follow.
    """
    headers = [kind] if json_bytes is None else [_BINARY, (_JSON_LENGTH, str(json_bytes).encode())]
    if head.negotiates:
        headers.append((b"vary", b"accept-encoding"))
        if head.answer_encoding is not None:
            parts = await _encoded(parts, head.answer_encoding, headers)
    await write(send, 200, headers, parts)


def answer_lines(num_bytes: int, json_bytes: int | None) -> bytes:
    """Returns an answer's own headers, encoded. The answer has `num_bytes` bytes; `json_bytes` is that of `write_answer`."""
    kind = b"%b: %b\r\n" % (JSON if json_bytes is None else _BINARY)
    length = b"" if json_bytes is None else b"%b: %d\r\n" % (_JSON_LENGTH, json_bytes)
    return kind + length + b"content-length: %d\r\n" % num_bytes


async def _encoded(
    parts: Sequence[bytes | memoryview], encoding: Encoding, headers: list[Header]
) -> Sequence[bytes | memoryview]:
    body = await compress(parts, encoding)
    if body is None:
        return parts
    headers.append((b"content-encoding", encoding.token))
    return [body]


async def write_error(send: Send, error: Exception, ids: Ids, more_headers: Sequence[Header] = ()) -> int:
    """Writes any error, one of ours or not, in the common form, with the ids of its request. Returns its status."""
    status, headers = 500, [JSON, *more_headers, *retry_headers(error)]
    if isinstance(error, DyOrcError):
        status = status_of(error)
    await write(send, status, headers, [error_body(error, ids)])
    return status


async def write(send: Send, status: int, headers: list[Header], parts: Sequence[bytes | memoryview]) -> None:
    """Writes a whole response and adds its length to the headers."""
    num_bytes = sum(map(len, parts))
    headers.append((b"content-length", b"%d" % num_bytes))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await write_parts(send, parts, more_body=False)


async def write_parts(send: Send, parts: Sequence[bytes | memoryview], *, more_body: bool) -> None:
    """Writes several parts of a response whose head has been written; short parts together."""
    if sum(map(len, parts)) <= _JOIN_BYTES:
        await send(
            {"type": "http.response.body", "body": parts[0] if len(parts) == 1 else b"".join(parts), "more_body": more_body}
        )
        return
    for part in parts[:-1]:
        await write_body(send, part, more_body=True)
    await write_body(send, parts[-1], more_body=more_body)


async def write_body(send: Send, body: bytes | memoryview, *, more_body: bool) -> None:
    """Writes one part of a response whose head has been written."""
    if len(body) > _PIECE_BYTES:
        body = memoryview(body)
        while len(body) > _PIECE_BYTES:
            await send({"type": "http.response.body", "body": body[:_PIECE_BYTES], "more_body": True})
            body = body[_PIECE_BYTES:]
            await asyncio.sleep(0)  # as in `write_parts`
    await send({"type": "http.response.body", "body": body, "more_body": more_body})


_log = structlog.get_logger("dyorc.gateway")

T = TypeVar("T")
Buffers: TypeAlias = list[bytes | memoryview]

EVENTS: Header = (b"content-type", f"{media_types.EVENTS}; charset=utf-8".encode())
FRAMES: Header = (b"content-type", media_types.FRAMES.encode())
UNBUFFERED: Header = (b"x-accel-buffering", b"no")  # proxies pass each part on at once


class Wrap(Protocol):
    """Turns an answer into one part of a stream. The answer comes in pieces; its JSON is `json_bytes` long if tensors follow."""

    def __call__(self, parts: Sequence[bytes | memoryview], json_bytes: int | None = None) -> Buffers: ...


def as_event(parts: Sequence[bytes | memoryview], json_bytes: int | None = None) -> Buffers:
    """Returns a part that is only JSON as a server-sent event. JSON as we write it has no line breaks."""
    return [b"data: ", *parts, b"\n\n"]


def as_frame(parts: Sequence[bytes | memoryview], json_bytes: int | None = None) -> Buffers:
    """Returns a part as a frame: the lengths of its JSON and of the raw tensors after it (u32, little-endian), then both."""
    num_bytes = sum(len(part) for part in parts)
    json_bytes = num_bytes if json_bytes is None else json_bytes
    return [FRAME_LENGTHS.pack(json_bytes, num_bytes - json_bytes), *parts]


class StreamWriter:
    """Writes one stream.

    Args:
        wrap: `as_event` or `as_frame`; errors go through it too.
        name: The model's name, for logs.
        ids: Of the request.
        names_errors: Whether an event with an error has the name ``error``; a part may have any form, also that of an error.

    Attributes:
        is_started: Whether the client has received the status. From then on, errors are sent as parts.
    """

    def __init__(self, send: Send, wrap: Wrap, name: str, ids: Ids, *, names_errors: bool = False) -> None:
        self._send = send
        self._wrap = wrap
        self._name = name
        self._ids = ids
        self._error_name = [b"event: error\n"] if names_errors else []
        self.is_started = False

    async def run(self, parts: AsyncGenerator[list[Buffers]]) -> None:
        """Writes all parts; parts that are ready at the same time go out in one message. Always closes `parts`.

        Raises:
            Exception: Any failure before the first part. Later failures are written as the last part.
        """
        async with aclosing(parts):
            ready = await anext(parts, None)
            await self._start()
            try:
                while ready is not None:
                    await self._write([buffer for part in ready for buffer in part])
                    ready = await anext(parts, None)
            except Exception as error:
                self._report(error)
                await self._write([*self._error_name, *self._wrap([error_body(error, self._ids)])])
            await self._send({"type": "http.response.body", "body": b""})

    async def _start(self) -> None:
        headers = [EVENTS if self._wrap is as_event else FRAMES, UNBUFFERED]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self.is_started = True

    async def _write(self, buffers: Buffers) -> None:
        await write_parts(self._send, buffers, more_body=True)

    def _report(self, error: Exception) -> None:
        if not isinstance(error, DyOrcError):
            _log.error("stream_crashed", model=self._name, exc_info=error, **self._ids.facts)
        elif status_of(error) >= 500:
            _log.warning("stream_failed", model=self._name, error=str(error), **self._ids.facts)


async def only_part(parts: AsyncGenerator[list[T]], model: Model) -> T:
    """Returns the only part of a stream.

    Raises:
        UnsupportedError: If the stream does not have exactly one part; further parts are not computed.
    """
    received: list[T] = []
    async with aclosing(parts):
        async for ready in parts:
            received += ready
            if len(received) > 1:
                break
    if len(received) != 1:
        raise UnsupportedError(
            f"model {model.name!r} answers in parts, and gave {'more than one' if received else 'none'}, where generate answers "
            f"with exactly one; ask by POST /v2/models/{model.name}/generate_stream, which sends an event for each"
        )
    return received[0]
