"""A request that another ASGI server has read, such as uvicorn, in the form in which our own connections hand theirs on.

It does what `ServerExchange` and `HttpConnection` do beside the parsing: ids, common headers, and the loss of the client. For the
event loop's thread.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from http import HTTPStatus

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dyorc.errors import InvalidInputError
from dyorc.gateway.codec.http_errors import error_body
from dyorc.gateway.http.answer_writer import COMMON
from dyorc.gateway.http.cors import Cors
from dyorc.gateway.http.inference_answers import JSON, write, write_error
from dyorc.gateway.http.middleware import EXCHANGE, OUTER
from dyorc.gateway.request_ids import Ids, answer_headers, ids_in_headers
from dyorc.protocol.header_names import Header

_log = structlog.get_logger("dyorc.gateway")

_MAX_LENGTH_DIGITS = 18
_MAX_DISCARD_S = 30.0
"""A client that sends a body that was refused has so long to send it, and then read the answer."""

_DISCONNECT: Message = {"type": "http.disconnect"}


class AsgiExchange:
    """One request, and its connection as far as the gateway needs one.

    Args:
        scope, receive, send: From the server.
        cors: Which pages may read answers; None if none may.

    Attributes:
        arrived_ns: When the server handed it on, on the monotonic clock.
        read_ns: When all of it was here.
        has_started: Whether its answer has begun.
        is_answered: Whether its answer is complete.
        is_lost: Whether the client is gone.
        is_foreign: Whether the user's application answers it, whose headers are left as they are.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, cors: Cors | None) -> None:
        self.arrived_ns = self.read_ns = time.monotonic_ns()
        self.has_started = self.is_answered = self.is_lost = self.is_foreign = False
        self._outer = scope
        self._receive = receive
        self._send = send
        self._cors = cors
        self._ids: Ids | None = None
        self._is_taken = False  # the application has all of the body
        self._is_refused = False  # a body that is too large was refused before its end
        self._held: Message | None = None
        self._news = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._watching: asyncio.Task[None] | None = None

    @property
    def ids(self) -> Ids:
        """The request's ids. Made when they are first needed."""
        if self._ids is None:
            self._ids = ids_in_headers(self._outer["headers"])
        return self._ids

    @property
    def sent_headers(self) -> list[Header]:
        """The request's, with names in lower case."""
        return self._outer["headers"]

    async def run(self, app: ASGIApp) -> None:
        """Lets an application answer it, and answers itself if that fails."""
        try:
            self._check_length()
            await app(self._scope(), self.receive, self.send)
        except InvalidInputError as error:
            if self.has_started:
                raise
            await write_error(self.send, error, self.ids)
        except Exception as error:
            _log.exception("request_crashed", path=self._outer["path"], **self.ids.facts)
            if self.has_started and not self.is_answered:
                raise  # so that the server ends the connection: nothing may follow a part of an answer
            if not self.has_started:
                await write(self.send, 500, [JSON], [error_body(error, self.ids)])
        finally:
            if self._watching is not None:
                self._watching.cancel()

    # For the gateway

    async def receive(self) -> Message:
        """Returns the next part of the body; after its end, waits until the client goes away."""
        if self._is_taken:
            await asyncio.shield(self._watch())
            return _DISCONNECT
        if self._watching is not None and not self._watching.done():
            await self._news.wait()  # it reads in our place
        if self._held is None:
            message = _DISCONNECT if self.is_lost else await self._next()
        else:
            message, self._held = self._held, None
            self._news.clear()
        self._is_taken = message["type"] == "http.request" and not message.get("more_body", False)
        if self._is_taken and self._callbacks:
            self._watch()
        return message

    async def send(self, message: Message) -> None:
        """Writes the head of the answer, or a part of its body."""
        if message["type"] == "http.response.start":
            self.has_started = True
            await self._send({**message, "headers": self._headers(message)})
            return
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        sent = {**message, "body": body if isinstance(body, bytes) else bytes(body)}
        if is_last and self._is_refused:
            await self._send({**sent, "more_body": True})
            await self._discard_body()
            sent["body"] = b""
        self.is_answered = is_last
        await self._send(sent)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when the client goes away, until `discard`; at once if it is gone."""
        if self.is_lost:
            callback()
            return
        self._callbacks.append(callback)
        self._watch()

    def discard(self, callback: Callable[[], None]) -> None:
        """Removes the callback."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    # Inside

    @property
    def path(self) -> str:
        """The path of the route, without the one below which DyOrc is mounted."""
        path: str = self._outer["path"]
        root: str = self._outer.get("root_path", "").rstrip("/")
        if root and (path == root or path.startswith(f"{root}/")):  # as the standard has it; some servers leave it out
            return path[len(root) :] or "/"
        return path

    def _scope(self) -> Scope:
        """Returns the scope for our routes, which know nothing of the path below which they are mounted."""
        outer = self._outer
        return {
            **outer,
            "path": self.path,
            "raw_path": outer.get("raw_path") or outer["path"].encode(),
            "root_path": "",
            "dyorc.connection": self,
            "dyorc.arrived_ns": self.arrived_ns,
            EXCHANGE: self,
            OUTER: outer,
        }

    def _check_length(self) -> None:
        """Refuses a length that is none; our own parser never lets one through.

        Raises:
            InvalidInputError: If it is malformed.
        """
        for name, value in self._outer["headers"]:
            if name == b"content-length" and not (value.isdigit() and len(value) <= _MAX_LENGTH_DIGITS):
                raise InvalidInputError(f"Content-Length is {value[:40].decode('latin-1')!r}, expected a number of bytes")

    def _headers(self, message: Message) -> list[Header]:
        headers: list[Header] = list(message.get("headers", ()))
        if not self.is_foreign:
            names = {name for name, _ in headers}
            headers += [header for header in COMMON if header[0] not in names]
            headers += answer_headers(self.ids, message["status"])
            if message["status"] == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and not self._is_taken:
                self._is_refused = True
                headers.append((b"connection", b"close"))  # so that the client may stop sending
        if self._cors is not None:
            headers += self._cors.headers(self._outer["headers"])
        if self._outer.get("http_version", "1.1") not in ("1.0", "1.1"):
            headers = [header for header in headers if header[0] != b"connection"]  # HTTP/2 has none
        return headers

    async def _discard_body(self) -> None:
        """Reads what the client still sends: if the server closed the connection earlier, the client's kernel would see a reset,
        and discard the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MAX_DISCARD_S):
                while not (self._is_taken or self.is_lost):
                    await self.receive()

    async def _next(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._lose()
        elif not message.get("more_body", False):
            self.read_ns = time.monotonic_ns()
        return message

    def _watch(self) -> "asyncio.Task[None]":
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._wait_for_loss())
        return self._watching

    async def _wait_for_loss(self) -> None:
        """Reads until the client is gone. A part of the body that nobody has asked for yet is held; if more follow it, the client
        waits, and is not watched, until that is taken."""
        while not self.is_lost and self._held is None:
            message = await self._next()
            if message["type"] == "http.request":
                self._held = message
                self._news.set()
                if not message.get("more_body", False):
                    await self._next()

    def _lose(self) -> None:
        self.is_lost = True
        self._news.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
