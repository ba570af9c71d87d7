"""Answers in parts, as they become ready: server-sent events, or frames.

Each part is requested only when the one before it has been written. So a client that reads slowly slows its workflow down, and a
client that goes away stops it.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol, TypeAlias, TypeVar

import structlog
from starlette.types import Send

from dyorc.errors import DyOrcError, ExecutionError
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.http_errors import error_body, status_of
from dyorc.gateway.http.answers import write_parts
from dyorc.gateway.http.disconnects import CancelledWithClient
from dyorc.gateway.ids import Ids
from dyorc.protocol import media_types
from dyorc.protocol.header_names import Header
from dyorc.protocol.media_types import FRAME_LENGTHS

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

    Attributes:
        is_started: Whether the client has received the status. From then on, errors are sent as parts.
    """

    def __init__(self, send: Send, wrap: Wrap, name: str, ids: Ids) -> None:
        self._send = send
        self._wrap = wrap
        self._name = name
        self._ids = ids
        self.is_started = False

    async def run(self, parts: AsyncGenerator[list[Buffers]]) -> None:
        """Writes all parts, those that are ready at the same time in one message. Always closes `parts`.

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
                await self._write(self._wrap([error_body(error, self._ids)]))
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


def attach_current_task(wait: CancelledWithClient) -> None:
    """Ends the calling task when the client goes away, whether the task waits for a part or for the client to read."""
    task = asyncio.current_task()
    assert task is not None
    wait.attach(task)


async def only_part(parts: AsyncGenerator[list[T]], model: Model) -> T:
    """Returns the only part of a stream.

    Raises:
        ExecutionError: If the stream does not have exactly one part; further parts are not computed.
    """
    found: list[T] = []
    async with aclosing(parts):
        async for ready in parts:
            found += ready
            if len(found) > 1:
                break
    if len(found) != 1:
        raise ExecutionError(
            f"generate expects exactly 1 part, model {model.name!r} gave {'none' if not found else 'more'}; use generate_stream"
        )
    return found[0]
