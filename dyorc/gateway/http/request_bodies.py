"""Reads bodies of requests within limits: inference requests, with large tensors in shared memory, and small JSON."""

from typing import TypeVar

import msgspec
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from dyorc.errors import InvalidInputError, PayloadTooLargeError, RequestCancelledError
from dyorc.gateway.admission import Ticket
from dyorc.gateway.http.compression import decompress
from dyorc.gateway.http.heads import RequestHead
from dyorc.gateway.request_memory import RequestMemory
from dyorc.protocol.wire_errors import reason_of_json

_MAX_DRAIN_RATIO = 4
"""A body without a Content-Length that is too large is read, and discarded, up to this many times the limit, so that the client
reads the answer. One with a Content-Length is refused before it is read."""


class BodyReader:
    """Reads bodies.

    Args:
        max_bytes: The limit for a body, both as sent and decompressed.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def expected_bytes(self, head: RequestHead) -> int:
        """Returns how many bytes a body will have as sent; 0 if its head does not say.

        Raises:
            PayloadTooLargeError: If it will have more than allowed. None of it needs to be read.
        """
        num_bytes = head.announced_bytes or 0
        if num_bytes > self._max_bytes:
            raise _too_large(num_bytes, self._max_bytes)
        return num_bytes

    async def read(self, head: RequestHead, receive: Receive, memory: RequestMemory, ticket: Ticket) -> bytes | memoryview:
        """Reads the body of a request whose `expected_bytes` are no more than allowed, decompressed.

        Args:
            memory: Has room for large tensors, if the headers say where they will be.
            ticket: Grows by unannounced bytes, and by what decompression adds.

        Raises:
            PayloadTooLargeError: If it is longer than allowed.
            InvalidInputError: If it differs from what the headers say.
            RequestCancelledError: If the client went away while sending it.
            CapacityError: If there is no room for it now.
        """
        announced_bytes, json_bytes = head.announced_bytes, head.json_bytes
        if head.encoding is not None:
            body = await self.read_all(head, receive, ticket)
            return await decompress(body, head.encoding, self._max_bytes, ticket.grow)
        if announced_bytes is not None and json_bytes is not None:
            room = memory.room(announced_bytes, json_bytes)
            if room is not None:
                return await _read_into(room, receive)
        return await self.read_all(head, receive, ticket)

    async def read_all(self, head: RequestHead, receive: Receive, ticket: Ticket) -> bytes:
        """Reads the body as sent, into ordinary memory. Arguments and errors are those of `read`."""
        limit, announced_bytes = self._max_bytes, head.announced_bytes
        parts: list[bytes] = []
        num_bytes = 0
        has_more = True
        while has_more:
            part, has_more = await _next_part(receive)
            num_bytes += len(part)
            if num_bytes <= limit:
                if announced_bytes is None:
                    ticket.grow(len(part))
                parts.append(part)
            elif num_bytes > limit * _MAX_DRAIN_RATIO:
                raise _too_large(num_bytes, limit)
        if num_bytes > limit:
            raise _too_large(num_bytes, limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)


async def _read_into(memory: memoryview, receive: Receive) -> memoryview:
    """Reads a body of known length into `memory`."""
    at, has_more = 0, True
    while has_more:
        part, has_more = await _next_part(receive)
        if len(part) > len(memory) - at:
            raise InvalidInputError(f"the body is longer than the {len(memory)} bytes that Content-Length says")
        memory[at : at + len(part)] = part
        at += len(part)
    return memory[:at]


async def _next_part(receive: Receive) -> tuple[bytes, bool]:
    """Returns the next part of a body, and whether more follow."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise RequestCancelledError("the client went away while sending its request")
    return message.get("body", b""), message.get("more_body", False)


def _too_large(num_bytes: int, limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f"the request's body has {num_bytes} bytes, the limit is {limit}")


T = TypeVar("T")

_MAX_BODY_BYTES = 64 * 2**10


async def read_json(request: Request, kind: type[T]) -> T:
    """Reads the body of a request; an empty one counts as an object without fields.

    Raises:
        InvalidInputError: If it is not JSON of this type.
        PayloadTooLargeError: If it is longer than 64 KiB.
        RequestCancelledError: If the client went away.
    """
    body = bytearray()
    _check_length(int(request.headers.get("content-length", 0)))  # which the HTTP parser has checked
    try:
        async for part in request.stream():
            body += part
            _check_length(len(body))
    except ClientDisconnect:
        raise RequestCancelledError("the client went away while sending its request") from None
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except RecursionError as error:
        raise InvalidInputError("the request's JSON is nested too deeply") from error
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the request's {reason_of_json(error)}") from error


def _check_length(num_bytes: int) -> None:
    if num_bytes > _MAX_BODY_BYTES:
        raise PayloadTooLargeError(f"the request's body is longer than {_MAX_BODY_BYTES} bytes")
