"""Compressed bodies: gzip, and deflate, which in HTTP means a zlib stream (RFC 9110, 8.4.1).

Decompression is bounded while it runs, so a small body cannot grow into a huge one. Short bodies are handled on the event loop;
longer ones go to a thread in pieces, during which zlib releases the interpreter's lock.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache

from dyorc.errors import InvalidInputError, PayloadTooLargeError

_PIECE_BYTES = 4 * 2**20
"""One visit to a thread decompresses at most this many bytes."""
_INLINE_BYTES = 64 * 2**10
"""Up to this many bytes are compressed or decompressed on the event loop, which takes a fraction of a millisecond."""
_INLINE_BODY_BYTES = 16 * 2**10
"""The same limit for the length of compressed bodies."""
_WINDOW_BYTES = 64 * 2**10
"""How many bytes are passed to zlib at a time."""
_MAX_MEMBERS = 10_000
"""How many gzip files one body may contain. Tools that compress in parallel make several thousand from 64 MiB."""
MIN_BYTES = 1024
"""Shorter answers are sent uncompressed: compression would hardly save a packet."""
_LEVEL = 1
"""Tensors of numbers shrink little at any level, and this level is several times faster than the next."""


class Encoding(Enum):
    """A compression method. The value is zlib's window parameter."""

    GZIP = zlib.MAX_WBITS | 16
    DEFLATE = zlib.MAX_WBITS

    @property
    def token(self) -> bytes:
        return self.name.lower().encode()


_BY_NAME = {b"gzip": Encoding.GZIP, b"x-gzip": Encoding.GZIP, b"deflate": Encoding.DEFLATE}


def encoding_of(value: bytes) -> Encoding | None:
    """Returns the encoding that a request's Content-Encoding names; None if it is not compressed.

    Raises:
        InvalidInputError: If the encoding is unknown, or if there are several.
    """
    name = value.strip().lower()
    if name in (b"", b"identity"):
        return None
    if name not in _BY_NAME:
        raise InvalidInputError(f"Content-Encoding is {name[:40].decode('latin-1')!r}, expected gzip, deflate or identity")
    return _BY_NAME[name]


@lru_cache(maxsize=64)  # the same few clients send the same few values
def accepted_encoding(value: bytes) -> Encoding | None:
    """Returns the encoding that a client with this Accept-Encoding prefers; None for uncompressed.

    Among equals, gzip comes first. A client that accepts nothing, not even uncompressed answers, still gets an uncompressed one.
    """
    weights: dict[bytes, float] = {}
    for item in value.lower().split(b","):
        name, *parameters = item.split(b";")
        weights[name.strip()] = weight_of(parameters)
    default = weights.get(b"*", 0.0)
    gzip = max(weights.get(b"gzip", default), weights.get(b"x-gzip", 0.0))
    deflate = weights.get(b"deflate", default)
    best = max(gzip, deflate)
    if best <= 0 or weights.get(b"identity", 0.0) > best:
        return None
    return Encoding.GZIP if gzip == best else Encoding.DEFLATE


def weight_of(parameters: Sequence[bytes]) -> float:
    """Returns how much a client wants one of the things that it accepts, from the parameters after it: 0 means not at all."""
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0  # a malformed value counts as unwanted
    return 1.0


async def decompress(body: bytes, encoding: Encoding, max_bytes: int, grow: Callable[[int], None]) -> bytes:
    """Decompresses a body.

    Args:
        max_bytes: The limit for the result; at most one byte more is ever produced.
        grow: Called with the number of bytes each time some are produced; may refuse.

    Raises:
        InvalidInputError: If the body is not a valid stream, ends too early, or continues after the stream's end.
        PayloadTooLargeError: If the result is larger than `max_bytes`.
    """
    stream = _Stream(body, encoding)
    parts: list[bytes] = []
    num_bytes = 0
    if len(body) <= _INLINE_BODY_BYTES:
        parts.append(stream.read(min(_INLINE_BYTES, max_bytes + 1)))
        num_bytes = len(parts[0])
        grow(num_bytes)
    while not stream.is_at_end and num_bytes <= max_bytes:
        part = await asyncio.to_thread(stream.read, min(_PIECE_BYTES, max_bytes + 1 - num_bytes))
        num_bytes += len(part)
        grow(len(part))
        parts.append(part)
    if num_bytes > max_bytes:
        raise PayloadTooLargeError(f"the request's body has more than {max_bytes} bytes, the limit, once it is decompressed")
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _Stream:
    """The unread rest of a compressed body. A gzip body may consist of several files in a row.

    zlib copies the input that it does not need, so it gets a little at a time; otherwise a body of many tiny files would be
    copied once for each of them.
    """

    def __init__(self, body: bytes, encoding: Encoding) -> None:
        self._name = encoding.name.lower()
        self._encoding = encoding
        self._body = memoryview(body)
        self._at = 0
        self._num_members = 1
        self._member = zlib.decompressobj(encoding.value)
        self.is_at_end = False

    def read(self, max_bytes: int) -> bytes:
        """Returns the next bytes: at most `max_bytes`, and at least one unless the body has ended."""
        data = b""
        while not data and not self.is_at_end:
            window = self._body[self._at : self._at + _WINDOW_BYTES]
            try:
                data = self._member.decompress(window, max_bytes)
            except zlib.error as error:
                raise InvalidInputError(f"the request's body is not a {self._name} stream: {error}") from None
            member = self._member
            self._at += len(window) - len(member.unused_data if member.eof else member.unconsumed_tail)
            if member.eof:
                self._next_member()
            elif not data and not window:
                raise InvalidInputError(f"the request's body ends in the middle of its {self._name} stream")
        return data

    def _next_member(self) -> None:
        num_left = len(self._body) - self._at
        if not num_left:
            self.is_at_end = True
            return
        if self._encoding is Encoding.DEFLATE:
            raise InvalidInputError(f"the request's body has {num_left} more bytes after the end of its deflate stream")
        self._num_members += 1
        if self._num_members > _MAX_MEMBERS:
            raise InvalidInputError(f"the request's body has more than {_MAX_MEMBERS} gzip files in a row")
        self._member = zlib.decompressobj(self._encoding.value)


async def compress(parts: Sequence[bytes | memoryview], encoding: Encoding) -> bytes | None:
    """Returns a body compressed; None if that would not make it shorter."""
    num_bytes = sum(len(part) for part in parts)
    if num_bytes < MIN_BYTES:
        return None
    body = _compressed(parts, encoding) if num_bytes <= _INLINE_BYTES else await asyncio.to_thread(_compressed, parts, encoding)
    return body if len(body) < num_bytes else None


def _compressed(parts: Sequence[bytes | memoryview], encoding: Encoding) -> bytes:
    stream = zlib.compressobj(_LEVEL, wbits=encoding.value)
    return b"".join([*(stream.compress(part) for part in parts), stream.flush()])
