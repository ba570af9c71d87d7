"""One HTTP/1.1 connection: sends prepared bytes and hands over the answer's bytes."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias, cast

import httptools

from dyorc.protocol.header_names import JSON_LENGTH
from loadgen.targets.base import RequestFailedError

Reply: TypeAlias = tuple[int, int, bytes]
"""Status; length of the JSON in the body, or -1 if no header says; body."""

_JSON_LENGTH = JSON_LENGTH.encode()
_LENGTHS = (b"content-length", b"transfer-encoding")
_BODILESS = (204, 304)


class Parser(Protocol):
    """The part of httptools' parser that we use."""

    def feed_data(self, data: bytes) -> None: ...

    def get_status_code(self) -> int: ...

    def should_keep_alive(self) -> bool: ...


class Connection(asyncio.Protocol):
    """Carries one request at a time.

    Args:
        on_lost: Called once when it is gone, with itself.
    """

    __slots__ = (
        "_answer",
        "_body",
        "_feed",
        "_is_begun",
        "_json_bytes",
        "_knows_end",
        "_on_lost",
        "_parser",
        "_transport",
        "idle_since_ns",
    )
    _transport: asyncio.Transport

    def __init__(self, on_lost: Callable[["Connection"], None]) -> None:
        self._on_lost = on_lost
        self._answer: asyncio.Future[Reply] | None = None
        self._feed: Callable[[bytes], None] | None = None
        self.idle_since_ns = 0  # kept by the connection's owner
        self._reset()

    def _reset(self) -> None:
        self._body: list[bytes] = []
        self._json_bytes = -1
        self._is_begun = self._knows_end = False

    @property
    def is_open(self) -> bool:
        """Whether another request can be sent."""
        return not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser: Parser = httptools.HttpResponseParser(self)

    def send(self, request: bytes, answer: "asyncio.Future[Reply]", feed: Callable[[bytes], None] | None = None) -> None:
        """Sends a request. The future gets its answer or its error.

        The connection is free when the future is done, if it is still open.

        Args:
            feed: Called with each piece of the answer's body as it comes, if the status is 200.
        """
        self._answer = answer
        self._feed = feed
        self._transport.write(request)

    def close(self) -> None:
        """Drops the connection at once."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self._transport.abort()  # bytes that no request has asked for
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._answer is not None:
                self._fail(f"the answer is not HTTP/1.1: {type(error).__name__}")
            self._transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == _JSON_LENGTH:
            self._json_bytes = int(value) if value.isdigit() and len(value) < 19 else -1
        elif name in _LENGTHS:
            self._knows_end = True

    def on_headers_complete(self) -> None:
        self._is_begun = True
        if self._answer is None:
            self._transport.abort()  # a second answer to one request

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        if self._feed is not None and self._parser.get_status_code() == 200:
            self._feed(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # the answer itself is still to come
            self._reset()
            return
        self._finish(status)
        if not self._parser.should_keep_alive():
            self._transport.close()

    def _finish(self, status: int) -> None:
        body = self._body
        reply = (status, self._json_bytes, body[0] if len(body) == 1 else b"".join(body))
        answer, self._answer = self._answer, None
        self._reset()
        if answer is not None and not answer.done():
            answer.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None:
            status = self._parser.get_status_code() if self._is_begun else 0
            if exc is None and self._is_begun and not self._knows_end and status not in _BODILESS:
                self._finish(status)  # without a length, the end of the connection is the end of the answer
            elif self._is_begun:
                self._fail("the server closed the connection in the middle of its answer")
            else:
                self._fail("the server closed the connection without an answer")
        self._on_lost(self)

    def _fail(self, text: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(RequestFailedError(text))
