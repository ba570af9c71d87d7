"""One HTTP connection: uvicorn's, with an end to its patience, a limit for heads, and word of its loss.

uvicorn parses requests and writes answers. Added here: a client that is slow with its request, does not read its answer, or does
nothing for long is disconnected (`patience.py` says when); so is one whose head is too large, or that comes when there are too
many. And whoever works for a client is told at once when it goes, through ``scope["dyorc.connection"]``.

The stages of what a connection reads:

    IDLE -> HEAD -> BODY -> DONE -> IDLE          DONE: all of the request is here, its answer is not written yet
             \\__431, 408   \\__408

For the event loop's thread.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias, cast

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from dyorc.config import GatewayConfig
from dyorc.gateway.http.flow import Flow, num_acknowledged
from dyorc.gateway.http.one_write import OneWrite
from dyorc.gateway.http.patience import Patience, Room

Callback: TypeAlias = Callable[[], None]


_MAX_WAITING_REQUESTS = 100
"""Of one connection, behind the one that is being answered; with more it is closed. What comes in one read may be thousands."""


class _Stage(Enum):
    """How far the request is that is being read."""

    HEAD = 0
    BODY = 1
    DONE = 2


class _TooMuch(Exception):
    """Stops the parser."""


class Connection(HttpToolsProtocol):
    """A client's connection.

    Args:
        config: uvicorn's.
        state: uvicorn's, of the whole server.
        patience: Of the whole server.
        limits: Largest head, slowest client.
        max_connections: With more than so many, it refuses itself.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        patience: Patience,
        limits: GatewayConfig,
        max_connections: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, state, {}, loop)
        self._patience = patience
        self._limits = limits
        self._max_connections = max_connections
        self._callbacks: list[Callback] = []
        self._is_lost = False
        self._is_refused = False
        self._room: Room | None = None
        self._stage = _Stage.DONE
        self._is_new = False  # a head began in what was read last
        self._num_head_bytes = 0  # of lines that are complete
        self._num_unfinished_bytes = 0  # since the head began or a part of the body came, but for the piece with that in it
        self._num_received = 0  # in this stretch of the body
        self._num_acknowledged = 0  # when this stretch of writing began

    # For those who work for the client

    def on_lost(self, callback: Callback) -> None:
        """Has `callback` called when the connection is lost, or at once if it is; until `discard`."""
        if self._is_lost:
            callback()
            return
        self._callbacks.append(callback)
        self.flow.resume_reading()  # who does not read does not notice either

    def discard(self, callback: Callback) -> None:
        """Does not call it any more."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        super().connection_made(cast(asyncio.Transport, transport))
        self.flow = Flow(self.transport, self.pipeline)
        self._settle()
        if len(self.connections) > self._max_connections:
            self.refuse(503, "capacity", f"the server has {self._max_connections} connections, and takes no more")
            self.transport.close()  # what is too much must not linger
            self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._is_lost = True
        self._patience.forget(self)
        super().connection_lost(exc)
        self._tell_of_loss()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._is_refused or self.transport.is_closing():
            return
        self._num_received += len(data)
        self._num_unfinished_bytes += len(data)
        super().data_received(data)
        if self._num_unfinished_bytes > self._limits.max_header_bytes:  # the parser collects a line until it ends
            self._refuse_head()
        self._settle()

    def pause_writing(self) -> None:
        """The client reads more slowly than is written."""
        super().pause_writing()
        self._num_acknowledged = num_acknowledged(self.transport)
        self._patience.writing.enter(self, self._patience.clock_s())

    def resume_writing(self) -> None:
        """It has caught up."""
        super().resume_writing()
        self._patience.writing.leave(self)

    # What the parser calls

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        cast(dict[str, Any], self.scope)["dyorc.connection"] = self
        self._stage = _Stage.HEAD
        self._is_new = True
        self._num_head_bytes = self._num_unfinished_bytes = 0

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        """Its head is here."""
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope["method"] != "HEAD":  # whose answer has no body
            self.cycle.transport = cast(asyncio.Transport, OneWrite(self.transport))
        self._stage = _Stage.BODY
        if len(self.pipeline) > _MAX_WAITING_REQUESTS:
            raise _TooMuch

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        super().on_body(body)
        self._num_unfinished_bytes = 0

    def on_message_complete(self) -> None:
        """All of it is here."""
        super().on_message_complete()
        self._stage = _Stage.DONE
        self._num_unfinished_bytes = 0

    # What the answer and the server call

    def on_response_complete(self) -> None:
        """An answer is written. Unlike uvicorn's own, sets no timer."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._settle()

    def shutdown(self) -> None:
        """The server stops."""
        super().shutdown()
        self._settle()

    def send_400_response(self, msg: str) -> None:
        """What was sent is not HTTP, or too long."""
        if self._num_head_bytes > self._limits.max_header_bytes:
            self._refuse_head()
        else:
            self.refuse(400, "http", msg)

    def refuse(self, status: int, code: str, text: str) -> None:
        """Answers with an error, and closes when the client does, or soon; or at once, if another answer is on its way."""
        if self._is_refused or self.transport.is_closing():
            self._settle()
            return
        self._is_refused = True
        if self._is_answering():
            self.transport.close()
        else:
            self._write_error(status, code, text)
            self.flow.resume_reading()
            if self.transport.can_write_eof():  # not over TLS
                self.transport.write_eof()
        self.pipeline.clear()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._tell_of_loss()
        self._settle()

    def time_is_up(self, room: Room, now_s: float) -> None:
        """It was waited for, for as long as `room` allows."""
        patience = self._patience
        if room is patience.head:
            self.refuse(408, "http", f"the request's head was not complete after {room.timeout_s:g} s")
        elif room is patience.body and self._is_body_coming(room):
            self._num_received = 0
            room.enter(self, now_s)
        elif room is patience.body:
            self.refuse(408, "http", f"the request's body brought {self._num_received} bytes in {room.timeout_s:g} s")
        elif room is patience.writing and self._is_answer_read(room):
            room.enter(self, now_s)
        elif room is patience.idle or room is patience.refused:
            self.transport.close()
            self._settle()
        else:  # closing would wait for what the client does not read
            room.leave(self)
            self.transport.abort()

    # Inside

    def _write_error(self, status: int, code: str, text: str) -> None:
        is_retryable = status == 503
        body = orjson.dumps({"error": text, "code": code, "retryable": is_retryable})
        headers = [*self.server_state.default_headers, (b"content-type", b"application/json"), (b"connection", b"close")]
        headers += [(b"retry-after", b"1")] if is_retryable else []
        lines = [b"%b: %b\r\n" % header for header in (*headers, (b"content-length", b"%d" % len(body)))]
        self.transport.write(b"".join((STATUS_LINE[status], *lines, b"\r\n", body)))

    def _tell_of_loss(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _settle(self) -> None:
        """Goes to the room that it belongs into now."""
        room = self._fitting_room()
        if room is self._room and not (self._is_new and self._stage is _Stage.HEAD):
            return
        self._is_new = False
        if self._room is not None:
            self._room.leave(self)
        self._room = room
        if room is not None:
            self._num_received = 0
            room.enter(self, self._patience.clock_s())

    def _fitting_room(self) -> Room | None:
        if self._is_lost:
            return None
        if self.transport.is_closing():
            return self._patience.closing
        if self._is_refused:
            return self._patience.refused
        if self._stage is _Stage.DONE:
            return self._patience.idle if self.cycle is None or self.cycle.response_complete else None
        return self._patience.head if self._stage is _Stage.HEAD else self._patience.body

    def _is_answering(self) -> bool:
        """Whether what is written now would be taken for, or get into, the answer to another request."""
        if self.pipeline:
            return True
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return self._stage is _Stage.BODY  # this request has got its answer already
        return cycle.response_started or self._stage is not _Stage.BODY

    def _is_body_coming(self, room: Room) -> bool:
        """Whether a body is still waited for: what follows an answer that came early is thrown away, and not for long."""
        is_wanted = self.cycle is not None and not self.cycle.response_complete
        return is_wanted and (self.flow.read_paused or self._num_received >= self._least_bytes(room))

    def _is_answer_read(self, room: Room) -> bool:
        """Whether the client goes on reading its answer; begins another stretch of it."""
        before, self._num_acknowledged = self._num_acknowledged, num_acknowledged(self.transport)
        return self._num_acknowledged - before >= self._least_bytes(room)

    def _least_bytes(self, room: Room) -> float:
        return self._limits.min_bytes_per_s * room.timeout_s

    def _count(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > self._limits.max_header_bytes:
            raise _TooMuch

    def _refuse_head(self) -> None:
        self.refuse(431, "http", f"the request's head is larger than {self._limits.max_header_bytes} bytes")
