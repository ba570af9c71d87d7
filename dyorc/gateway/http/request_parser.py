"""Parses a connection's bytes into requests: httptools' parser with our limits. No I/O, no clock.

Offers to change the protocol (``Upgrade: h2c``, as curl and Java's client send) are ignored, as if the request did not have them.

For each request the listener is called in this order: `on_begin`, `on_head`, any number of `on_body`, `on_end`.
"""

import urllib.parse
from typing import NamedTuple, Protocol, cast

import httptools
from starlette.types import Scope

from dyorc.protocol.header_names import Header

MALFORMED = "what was sent is not HTTP/1.1"


class HttpRefusal(NamedTuple):
    """Why a request, or a whole connection, is refused.

    Attributes:
        code: A word for programs that read errors.
        retry_after_s: When to try again; None if the same request would be refused again.
    """

    status: int
    code: str
    text: str
    retry_after_s: int | None = None


class ParsedHead(NamedTuple):
    """A request, before its body.

    Attributes:
        raw_path: The path as sent; in `path`, percent-encoding is decoded.
        version: The HTTP version, "1.1" or "1.0".
        headers: Names in lower case.
        keeps_alive: Whether the client wants to use the connection again.
        expects_continue: Whether the client waits for "100 Continue" before it sends the body.
    """

    method: str
    path: str
    raw_path: bytes
    query: bytes
    version: str
    headers: list[Header]
    keeps_alive: bool
    expects_continue: bool

    def scope(self) -> Scope:
        """Returns the head's part of an ASGI scope."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self.version,
            "method": self.method,
            "root_path": "",
            "path": self.path,
            "raw_path": self.raw_path,
            "query_string": self.query,
            "headers": self.headers,
        }


class RequestListener(Protocol):
    """Receives the requests."""

    def on_begin(self) -> None:
        """Handles the first byte of a request."""

    def on_head(self, head: ParsedHead) -> None:
        """Handles the complete head of a request."""

    def on_body(self, part: bytes) -> None:
        """Handles a part of a request's body."""

    def on_end(self) -> None:
        """Handles the end of a request."""


class _Parser(Protocol):
    """The part of httptools' parser that we use."""

    def feed_data(self, data: bytes | memoryview) -> None: ...

    def get_http_version(self) -> str: ...

    def get_method(self) -> bytes: ...

    def should_keep_alive(self) -> bool: ...

    def should_upgrade(self) -> bool: ...


_VERSIONS = frozenset({"1.0", "1.1"})
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
"""Headers that say how long a body is."""


class _Refused(Exception):
    """Stops httptools."""


class RequestParser:
    """Parses what one connection receives.

    Args:
        max_header_bytes: The limit for a request's first line, headers and trailers together, and for any line that does not end.

    Attributes:
        num_missing_bytes: How many of the next bytes certainly belong to the body of the current request.
    """

    __slots__ = (
        "_body_headers", "_headers", "_is_over", "_is_replaying", "_keeps_alive", "_listener", "_max_header_bytes",
        "_num_head_bytes", "_num_unfinished_bytes", "_parser", "_refusal", "_url", "num_missing_bytes",
    )  # fmt: skip

    def __init__(self, listener: RequestListener, max_header_bytes: int) -> None:
        self._listener = listener
        self._max_header_bytes = max_header_bytes
        self._parser: _Parser = httptools.HttpRequestParser(self)
        self._refusal: HttpRefusal | None = None
        self._keeps_alive = True
        self._is_over = False  # the client has said that no other request follows
        self._body_headers: list[Header] | None = None  # of a request that offers to change the protocol, until its body is read
        self._is_replaying = False
        self.num_missing_bytes = 0
        self._url = b""
        self._headers: list[Header] | None = None  # while a head is read
        self._num_head_bytes = 0  # of lines that are complete
        self._num_unfinished_bytes = 0  # since the piece in which the head began or a part of the body came

    def feed(self, data: bytes | memoryview) -> HttpRefusal | None:
        """Parses received bytes and calls the listener. Returns why parsing cannot go on; None if it can."""
        if self._is_over:
            return None
        self._num_unfinished_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            if self._is_over:
                return None
            if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(error.__context__, _Refused):
                raise
            return self._refusal or HttpRefusal(400, "http", MALFORMED)
        if self._num_unfinished_bytes > self._max_header_bytes:  # httptools collects a line until it ends
            return self._head_too_large()
        return None

    # From httptools

    def on_message_begin(self) -> None:
        if self._is_replaying:
            return
        self._url = b""
        self._headers = []
        self._num_head_bytes = self._num_unfinished_bytes = 0
        self._listener.on_begin()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headers is not None:  # otherwise it is a trailer
            self._headers.append((name.lower(), value.rstrip(b" \t")))  # httptools drops blanks before it
        self._count(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        if self._is_replaying:
            return
        assert self._headers is not None
        headers, self._headers = self._headers, None
        raw_path, query = self._target()
        path = raw_path.decode("ascii")
        version = self._parser.get_http_version()
        if version not in _VERSIONS:  # httptools also reads 0.9, which is a line without a version, and 2.0
            raise self._refused(HttpRefusal(400, "http", MALFORMED))
        self._check_host(headers, version)
        self.num_missing_bytes = sum(int(value) for name, value in headers if name == b"content-length")  # there is one at most
        self._keeps_alive = self._parser.should_keep_alive()
        self._body_headers = [header for header in headers if header[0] in _FRAMING] if self._parser.should_upgrade() else None
        self._listener.on_head(
            ParsedHead(
                method=self._parser.get_method().decode("ascii"),
                path=urllib.parse.unquote(path) if "%" in path else path,
                raw_path=raw_path,
                query=query,
                version=version,
                headers=headers,
                keeps_alive=self._keeps_alive,
                expects_continue=version != "1.0"
                and any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers),
            )
        )

    def on_body(self, body: bytes) -> None:
        self._num_unfinished_bytes = 0
        self.num_missing_bytes -= len(body)
        self._listener.on_body(body)

    def on_message_complete(self) -> None:
        if self._body_headers is not None:
            return  # to httptools a request that offers another protocol ends with its head
        self._num_unfinished_bytes = self.num_missing_bytes = 0
        self._is_over = not self._keeps_alive
        self._listener.on_end()

    # Inside

    def _feed(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while True:
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
                self._ignore_offer()
            else:
                return

    def _ignore_offer(self) -> None:
        """Starts anew after a head that offers another protocol, with a parser that has seen the same head without the offer."""
        headers, self._body_headers = self._body_headers or [], None
        if not self._keeps_alive:
            headers.append((b"connection", b"close"))
        self._num_head_bytes = 0  # what follows is counted as trailers
        self._parser = httptools.HttpRequestParser(self)
        self._is_replaying = True
        try:
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n")
        finally:
            self._is_replaying = False

    def _target(self) -> tuple[bytes, bytes]:
        """Returns path and query from the request's first line."""
        try:
            url = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError:
            raise self._refused(HttpRefusal(400, "http", MALFORMED)) from None
        path = cast(bytes | None, url.path)
        if path is None or not path.isascii():
            raise self._refused(HttpRefusal(400, "http", MALFORMED))
        return path, url.query or b""

    def _check_host(self, headers: list[Header], version: str) -> None:
        """Refuses two Host headers, since a proxy between the client and us may have used the other one."""
        num = sum(name == b"host" for name, _ in headers)
        if num > 1 or (num == 0 and version != "1.0"):
            raise self._refused(
                HttpRefusal(400, "http", f"the request has {num or 'no'} Host header{'s' * (num > 1)}, expected one")
            )

    def _count(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > self._max_header_bytes:
            raise self._refused(self._head_too_large())

    def _head_too_large(self) -> HttpRefusal:
        return HttpRefusal(431, "http", f"the request's head is larger than {self._max_header_bytes} bytes")

    def _refused(self, refusal: HttpRefusal) -> _Refused:
        self._refusal = refusal
        return _Refused()
