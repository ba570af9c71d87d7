"""Answers of the inference routes on their way out."""

import asyncio
from collections.abc import Sequence

from starlette.types import Send

from dyorc.errors import DyOrcError, PayloadTooLargeError
from dyorc.gateway.codec.http_errors import error_body, retry_headers, status_of
from dyorc.gateway.http.compression import Encoding, compress
from dyorc.gateway.http.heads import RequestHead
from dyorc.gateway.ids import Ids
from dyorc.protocol import media_types
from dyorc.protocol.header_names import JSON_LENGTH, Header

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


async def write_answer(send: Send, head: RequestHead, parts: Sequence[bytes | memoryview], json_bytes: int | None) -> None:
    """Writes the body of an inference response, whose JSON is `json_bytes` long if tensors follow it; compressed on request."""
    headers = [JSON] if json_bytes is None else [_BINARY, (_JSON_LENGTH, str(json_bytes).encode())]
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
    found = await compress(parts, encoding)
    if found is None:
        return parts
    headers.append((b"content-encoding", encoding.token))
    return [found]


async def write_error(send: Send, error: Exception, ids: Ids, more_headers: Sequence[Header] = ()) -> int:
    """Writes any error, one of ours or not, in the common form, with the ids of its request. Returns its status."""
    status, headers = 500, [JSON, *more_headers]
    if isinstance(error, DyOrcError):
        status = status_of(error)
        headers += retry_headers(error)
        if isinstance(error, PayloadTooLargeError):
            headers.append((b"connection", b"close"))  # the rest of the request's body may still be coming
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
