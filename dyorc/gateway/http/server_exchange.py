"""One request and its answer. Runs in the event loop's thread only."""

import asyncio
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

import structlog
from starlette.types import ASGIApp, Message, Scope

from dyorc.errors import DyOrcError
from dyorc.gateway.codec.http_errors import error_body, retry_headers, status_of
from dyorc.gateway.http.answer_writer import AnswerWriter
from dyorc.gateway.http.flow import CONTINUE, Flow, waited_ns
from dyorc.gateway.http.inference_answers import JSON
from dyorc.gateway.http.middleware import EXCHANGE
from dyorc.gateway.http.request_parser import ParsedHead
from dyorc.gateway.request_ids import Ids, answer_headers, ids_in_headers
from dyorc.protocol.header_names import Header

_log = structlog.get_logger("dyorc.gateway")

_MAX_UNREAD_BYTES = 64 * 2**10
"""How many bytes of a body are buffered before the application asks for it. After that the client has to wait."""


class ConnectionLike(Protocol):
    """The connection, for an exchange."""

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def flow(self) -> Flow: ...

    @property
    def received_ns(self) -> int:
        """When its last bytes came to this machine, on the monotonic clock, as far as known."""
        ...

    @property
    def place(self) -> Mapping[str, Any]:
        """Its part of an ASGI scope."""
        ...

    def on_answered(self) -> None:
        """Handles that the exchange's answer is complete."""

    def give_up(self) -> None:
        """Handles that the exchange's answer will never be complete."""


class ServerExchange:
    """One request, from the end of its head to the end of its answer.

    Args:
        head: Of the request.
        connection: Where the rest of the request comes from.
        writer: Where the answer goes.
        arrived_ns: When the request's first byte came, on the monotonic clock; 0: computed when it is needed.

    Attributes:
        is_read: Whether all of the request is here.
        is_lost: Whether the client is gone, so that the answer is not needed.
        is_foreign: Whether the user's application answers it, whose headers are left as they are.
    """

    __slots__ = (
        "_arrived_ns", "_connection", "_ended_ns", "_ids", "_is_continue_due", "_is_taken", "_num_unread_bytes",
        "_parts", "_wakeup", "head", "is_foreign", "is_lost", "is_read", "writer",
    )  # fmt: skip

    def __init__(self, head: ParsedHead, connection: ConnectionLike, writer: AnswerWriter, arrived_ns: int = 0) -> None:
        self.head = head
        self.writer = writer
        self.is_read = self.is_lost = self.is_foreign = False
        self._arrived_ns = arrived_ns
        self._ended_ns = 0
        self._ids: Ids | None = None
        self._connection = connection
        self._is_continue_due = head.expects_continue
        self._parts: list[bytes] = []
        self._num_unread_bytes = 0
        self._is_taken = False  # the application has received all of the request
        self._wakeup: asyncio.Future[None] | None = None

    @property
    def arrived_ns(self) -> int:
        if not self._arrived_ns:
            self._arrived_ns = time.monotonic_ns() - waited_ns(self._connection.transport)
        return self._arrived_ns

    @property
    def read_ns(self) -> int:
        """When the last byte of a request that is read came to this machine, even if the server read it later."""
        return max(self._ended_ns, self.arrived_ns)

    @property
    def ids(self) -> Ids:
        """The request's ids. Made when they are first needed."""
        if self._ids is None:
            self._ids = ids_in_headers(self.head.headers)
        return self._ids

    @property
    def has_started(self) -> bool:
        """Whether its answer has begun."""
        return self.writer.has_started

    @property
    def is_answered(self) -> bool:
        """Whether its answer is complete."""
        return self.writer.is_complete

    @property
    def sent_headers(self) -> list[Header]:
        """The request's, with names in lower case."""
        return self.head.headers

    @property
    def has_given_id(self) -> bool:
        """Whether its client has given it an id, if `ids` has been read."""
        return self._ids is not None and self._ids.is_given

    # From the connection

    def add(self, part: bytes) -> None:
        """Takes a part of the body. Parts that come after the answer are discarded."""
        if self.writer.is_complete:
            return
        self._parts.append(part)
        self._num_unread_bytes += len(part)
        if self._num_unread_bytes > _MAX_UNREAD_BYTES:
            self._connection.flow.pause_reading()
        self._wake_receiver()

    def end(self) -> None:
        self.is_read = True
        self._ended_ns = self._connection.received_ns
        self._wake_receiver()

    def lose(self) -> None:
        self.is_lost = True
        self._wake_receiver()

    # From the answering side

    def body(self) -> bytes:
        """Returns the body of a request that is read."""
        parts, self._parts, self._is_taken = self._parts, [], True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def refuse(self, error: DyOrcError) -> None:
        """Answers at once with an error, unless the answer has begun; the connection ends with it."""
        if self.writer.has_started or self.is_lost:
            return
        body = error_body(error, self.ids)
        headers: list[Header] = [JSON, *retry_headers(error), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        self.writer.start(status_of(error), headers)
        self.writer.write(body, is_last_part=True)

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope(), self.receive, self.send)
        except asyncio.CancelledError:
            self._connection.give_up()
            raise
        except Exception as error:
            _log.exception("request_crashed", path=self.head.path, **self.ids.facts)
            await self._answer_crash(error)
        if not self.writer.is_complete and not self.is_lost:
            self._connection.give_up()

    async def receive(self) -> Message:
        """Returns the next part of the body, once it is there; after the body's end, waits until the client goes away."""
        if self._is_continue_due and not self._connection.transport.is_closing():
            self._connection.transport.write(CONTINUE)
        self._is_continue_due = False
        while self._is_taken or not (self._parts or self.is_read):
            if self._is_over():
                break
            self._connection.flow.resume_reading()
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        if self._is_over():
            return {"type": "http.disconnect"}
        parts, self._parts, self._num_unread_bytes, self._is_taken = self._parts, [], 0, self.is_read
        return {"type": "http.request", "body": parts[0] if len(parts) == 1 else b"".join(parts), "more_body": not self.is_read}

    async def send(self, message: Message) -> None:
        """Writes the head of the answer, or a part of its body."""
        if self._connection.flow.is_writing_paused and not self.is_lost:
            await self._connection.flow.drain()
        if self.is_lost:
            return
        if message["type"] == "http.response.start":
            if not self.is_read and (self._is_continue_due or message["status"] == HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
                # The client need not send the body now, so what comes next may be that or another request. A body that is too
                # large is not worth reading to its end.
                self.writer.is_last = True
            self._is_continue_due = False
            headers = list(message.get("headers", ()))
            if not self.is_foreign:
                headers += answer_headers(self.ids, message["status"])
            self.writer.start(message["status"], headers, is_foreign=self.is_foreign)
            return
        self.writer.write(message.get("body", b""), is_last_part=not message.get("more_body", False))
        if self.writer.is_complete:
            self._wake_receiver()
            self._connection.on_answered()

    # Inside

    def _scope(self) -> Scope:
        scope = self.head.scope()
        scope.update(self._connection.place)
        scope["dyorc.connection"] = self._connection
        scope[EXCHANGE] = self
        scope["dyorc.arrived_ns"] = self.arrived_ns
        return scope

    def _is_over(self) -> bool:
        return self.is_lost or self.writer.is_complete

    async def _answer_crash(self, error: Exception) -> None:
        if self.writer.has_started or self.is_lost:
            return
        body = error_body(error, self.ids)
        headers: list[Any] = [JSON, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def _wake_receiver(self) -> None:
        news, self._wakeup = self._wakeup, None
        if news is not None and not news.done():
            news.set_result(None)
