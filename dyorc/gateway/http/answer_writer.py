"""Writes one answer: its head together with the first part of its body, and the body in the form that the head announces."""

import asyncio
import http
import time
from collections.abc import Iterable, Sequence
from email.utils import formatdate

from dyorc.gateway.http.cors import Cors
from dyorc.gateway.http.request_parser import ParsedHead
from dyorc.protocol.header_names import Header

_JOIN_BYTES = 64 * 2**10
"""Longer parts are written separately: copying them costs more than another write."""

_BODILESS = frozenset({204, 304})
COMMON: tuple[Header, ...] = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Headers of every answer: browsers must not guess its type, and caches must not keep it, as it may be for one tenant only."""
_COMMON_NAMES = frozenset({b"date", *(name for name, _ in COMMON)})


def _status_line(status: int) -> bytes:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:  # 499
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


_OK = _status_line(200)
_STATUS_LINES = {status: _status_line(status) for status in range(200, 600)}


class CommonHeaders:
    """The default headers of all answers, encoded. The date is renewed every second.

    Args:
        cors: Which pages may read answers; None if none may.
    """

    def __init__(self, cors: Cors | None = None) -> None:
        self.cors = cors
        self._second = 0
        self._headers: list[Header] = []
        self._lines = b""

    def lines(self) -> bytes:
        """Returns all of them."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._headers = [(b"date", formatdate(second, usegmt=True).encode()), *COMMON]
            self._lines = _lines(self._headers)
        return self._lines

    def date_line(self) -> bytes:
        """Returns the date alone, for answers whose other headers are not ours."""
        self.lines()
        return _lines(self._headers[:1])

    def lines_missing_in(self, headers: Sequence[Header]) -> bytes:
        """Returns the ones that are not in `headers`."""
        self.lines()
        names = {name for name, _ in headers}
        return _lines([header for header in self._headers if header[0] not in names])


class AnswerWriter:
    """Writes one answer to a transport.

    The head waits for the first part of the body, as each write is a system call and wakes the client.

    Args:
        head: The request's head; None if it has not been read.

    Attributes:
        is_last: Whether the connection ends with this answer.
        has_started: Whether it has the head.
        is_complete: Whether it has all of the body as well.
    """

    __slots__ = (
        "_common", "_cors", "_has_body", "_held", "_is_chunked", "_is_old", "_missing_bytes", "_transport",
        "has_started", "is_complete", "is_last",
    )  # fmt: skip

    def __init__(self, transport: asyncio.Transport, common: CommonHeaders, head: ParsedHead | None) -> None:
        self._transport = transport
        self._common = common
        self._cors = b"" if common.cors is None or head is None else common.cors.lines(head.headers)
        self._has_body = head is None or head.method != "HEAD"
        self.is_last = head is None or not head.keeps_alive
        self.has_started = self.is_complete = False
        self._held = b""
        self._is_chunked = False
        # HTTP/1.0 closes after an answer by default, and has no chunks.
        self._is_old = head is not None and head.version == "1.0"
        self._missing_bytes: int | None = None

    def start(self, status: int, headers: Sequence[Header], *, is_foreign: bool = False) -> None:
        """Takes the head.

        Args:
            is_foreign: Whether the user's application answers, whose headers are left as they are.

        Raises:
            ValueError: If a header contains a line break.
        """
        length: int | None = None
        says_close = has_own = is_chunked = False
        is_last = self.is_last
        for name, value in headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and value == b"close":
                says_close = is_last = True
            elif name in _COMMON_NAMES:
                has_own = True
        has_body = self._has_body and status not in _BODILESS
        if length is None and has_body:
            is_chunked = not self._is_old
            is_last = is_last or self._is_old  # the body ends when the connection does
        if is_foreign:
            common = b"" if any(name == b"date" for name, _ in headers) else self._common.date_line()
        else:
            common = self._common.lines_missing_in(headers) if has_own else self._common.lines()
        lines = [_STATUS_LINES[status], common, self._cors, _lines(headers)]
        if is_chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if is_last and not says_close:
            lines.append(b"connection: close\r\n")
        elif self._is_old and not is_last:
            lines.append(b"connection: keep-alive\r\n")
        lines.append(b"\r\n")
        self._held = b"".join(lines)  # only now: after a head that cannot be written, another may follow
        self._has_body, self._missing_bytes, self._is_chunked, self.is_last = has_body, length, is_chunked, is_last
        self.has_started = True

    def write(self, body: bytes | memoryview, *, is_last_part: bool) -> None:
        """Writes a part of the body.

        Raises:
            ValueError: If the body's length differs from the head's.
        """
        if not self._has_body:
            body = b""
        elif self._is_chunked:
            body = _chunk(body, is_last_part=is_last_part)
        elif self._missing_bytes is not None:
            self._missing_bytes -= len(body)
            if self._missing_bytes < 0 or (is_last_part and self._missing_bytes):
                raise ValueError(f"an answer's body differs from its Content-Length by {-self._missing_bytes} bytes")
        head, self._held = self._held, b""
        if head and len(body) <= _JOIN_BYTES:
            self._transport.write(head + body)
        else:
            if head:
                self._transport.write(head)
            if body:
                self._transport.write(body)
        self.is_complete = is_last_part

    def write_whole(self, lines: bytes, parts: Iterable[bytes | memoryview]) -> None:
        """Writes a whole answer with status 200, on a connection that stays open.

        Args:
            lines: Its headers, encoded, besides the common ones.
        """
        self.has_started = self.is_complete = True
        self._transport.write(b"".join((_OK, self._common.lines(), self._cors, lines, b"\r\n", *parts)))


def _lines(headers: Sequence[Header]) -> bytes:
    """Encodes headers. They may contain text from clients, which must not be able to start a new line."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    joined = b"".join(lines)
    if joined.count(b"\n") != len(lines) or joined.count(b"\r") != len(lines):
        raise ValueError("a header of an answer contains a line break")
    return joined


def _chunk(body: bytes | memoryview, *, is_last_part: bool) -> bytes:
    parts: list[bytes | memoryview] = [b"%x\r\n" % len(body), body, b"\r\n"] if len(body) else []
    if is_last_part:
        parts.append(b"0\r\n\r\n")
    return b"".join(parts)
