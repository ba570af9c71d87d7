"""One HTTP connection: answers requests in the order in which they come.

`request_parser.py` parses requests, a `ServerExchange` takes each to its answer, and `timeouts.py` limits how long the client may
take. Small inference requests are answered right here (`direct.py`), everything else by the ASGI application. When a client goes,
the work for it is cancelled at once.

Runs in the event loop's thread only.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias, cast

import msgspec

from dyorc.errors import CapacityError, DyOrcError, ServerStoppedError
from dyorc.gateway.codec.http_errors import status_of
from dyorc.gateway.http.answer_writer import AnswerWriter
from dyorc.gateway.http.connection_registry import MAX_HEAD_BYTES, ConnectionRegistry, KnownHead
from dyorc.gateway.http.direct import DirectRequest, Route
from dyorc.gateway.http.flow import Flow, HalfClosed, waited_ns
from dyorc.gateway.http.heads import limit_s_of
from dyorc.gateway.http.inference_answers import JSON
from dyorc.gateway.http.request_parser import HttpRefusal, ParsedHead, RequestParser
from dyorc.gateway.http.server_exchange import ServerExchange
from dyorc.gateway.http.timeouts import ConnectionStage, ConnectionTimeouts
from dyorc.gateway.request_ids import Ids, header_of
from dyorc.protocol.header_names import RETRY_AFTER, Header
from dyorc.protocol.wire_errors import ErrorBody

Callback: TypeAlias = Callable[[], None]


_RETRY_AFTER = RETRY_AFTER.encode()
_PIECE_BYTES = 4 * 2**10
"""A single read may bring thousands of requests. It is parsed in pieces of this size, and no further while any of them wait."""
_NOTHING = memoryview(b"")


class HttpConnection(asyncio.Protocol):
    """A client's connection.

    Args:
        registry: What all connections of its server share.
    """

    transport: asyncio.Transport
    flow: Flow

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry = registry
        self._parser = RequestParser(self, registry.limits.max_header_bytes)
        self._timeouts = ConnectionTimeouts(self, registry.timeouts, registry.limits)
        self._callbacks: list[Callback] = []
        self._waiting: deque[ServerExchange] = deque()
        self._answering: ServerExchange | None = None
        self._direct: DirectRequest | None = None  # answers that one, if the application does not
        self._reading: ServerExchange | None = None  # the last one whose head has arrived
        self._is_reading_head = self._is_new = False
        self.received_ns = self._arrived_ns = 0  # when the last bytes came, and the first bytes of the last request
        self._unread = _NOTHING  # received but not parsed yet
        self._final_refusal: HttpRefusal | None = None  # ends the connection once everything before it has been answered
        self._has_hung_up = False  # nothing more will be written, and what still comes is discarded
        self._is_lost = self._is_stopping = self._is_half_closed = False

    # For exchanges

    def on_lost(self, callback: Callback) -> None:
        if self._is_lost:
            callback()
            return
        self._callbacks.append(callback)
        self.flow.resume_reading()  # a loss is noticed only by reading

    def discard(self, callback: Callback) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.flow = Flow(self.transport, self._may_read)
        socket, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        is_tls = transport.get_extra_info("sslcontext") is not None
        self.place = {"server": socket and socket[:2], "client": peer and peer[:2], "scheme": "https" if is_tls else "http"}
        if not self._registry.enter(self):
            num = self._registry.max_connections
            self.refuse(HttpRefusal(503, "capacity", f"the server has {num} connections and accepts no more", retry_after_s=1))
            self.transport.close()  # a surplus connection must not linger
        self._timeouts.settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._timeouts.end()
        self._registry.leave(self)
        self._give_up_requests()
        self.flow.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._final_refusal is not None or self._has_hung_up or self.transport.is_closing():
            return
        raw_head = b""
        if self._is_at_rest:
            raw_head = data[: data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4]
            known = self._registry.known_heads.find(raw_head)
            if known is not None and known.num_bytes == len(data):
                self._answer_known(known, data)
                return
        self._timeouts.on_received(len(data))
        self.received_ns = time.monotonic_ns() - waited_ns(self.transport)
        self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        self._parse()
        if self._direct is not None:
            self._learn(self._direct, raw_head, len(data))
            self._run_direct()
        self._settle()

    def eof_received(self) -> bool:
        """Handles that the client will send nothing more. Returns whether it still gets its answers."""
        if self.place["scheme"] == "https":  # TLS cannot close only one direction
            return False
        self._drop_unfinished()
        exchange = self._answering
        if exchange is None or exchange.writer.has_started or self._has_hung_up or self.transport.is_closing():
            return False  # a stream goes on while its client is there, which cannot be found out here
        self._is_half_closed = True
        HalfClosed(self.transport, is_asked=exchange.head.version != "1.0")
        return not self.transport.is_closing()

    def pause_writing(self) -> None:
        self.flow.pause_writing()
        self._timeouts.on_writing_paused()

    def resume_writing(self) -> None:
        self.flow.resume_writing()
        self._timeouts.on_writing_resumed()

    # What the parser calls

    def on_begin(self) -> None:
        self._is_reading_head = self._is_new = True
        self._arrived_ns = self.received_ns

    def on_head(self, head: ParsedHead) -> None:
        self._is_reading_head = False
        exchange = self._reading = ServerExchange(
            head, self, AnswerWriter(self.transport, self._registry.common_headers, head), self._arrived_ns
        )
        if self._answering is None:
            self._start(exchange)
            return
        self._waiting.append(exchange)
        self.flow.pause_reading()

    def on_body(self, part: bytes) -> None:
        assert self._reading is not None
        self._reading.add(part)

    def on_end(self) -> None:
        assert self._reading is not None
        self._reading.end()

    # What the exchange calls

    def on_answered(self) -> None:
        exchange, self._answering, self._direct = self._answering, None, None
        if exchange is None or self._is_lost:  # a refusal that was written a turn of the loop ago
            return
        if exchange.writer.is_last or (self._is_stopping and not self._waiting):
            self._hang_up()
        elif not (self._is_at_rest or self.transport.is_closing()):
            self._go_on()
        self._timeouts.settle(is_answered=True)

    def give_up(self) -> None:
        """Handles that an answer will never be complete. Nothing may follow that the client could mistake for a part of it."""
        self.transport.close()
        self._settle()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._registry.start(work)

    # What the server and the timeouts call

    @property
    def stage(self) -> ConnectionStage:
        if self._is_lost:
            return ConnectionStage.LOST
        if self.transport.is_closing():
            return ConnectionStage.CLOSING
        if self._has_hung_up:
            return ConnectionStage.REFUSED
        if self._final_refusal is not None or self._is_half_closed:
            return ConnectionStage.ANSWER
        if self._is_reading_head:
            return ConnectionStage.HEAD
        if self._reading is not None and not self._reading.is_read:
            return ConnectionStage.BODY
        return ConnectionStage.IDLE if self._answering is None else ConnectionStage.ANSWER

    @property
    def is_body_wanted(self) -> bool:
        return self._reading is not None and not self._reading.writer.is_complete

    def shut_down(self) -> None:
        """Ends the connection with its next answer, because the server stops: that one tells the client not to send another."""
        self._is_stopping = True
        if self._answering is not None:
            (self._waiting[-1] if self._waiting else self._answering).writer.is_last = True
        self._settle()

    def close_unless_answering(self) -> None:
        if self._answering is None:
            self.transport.close()
        self._settle()

    def refuse_unanswered(self, text: str) -> None:
        if self._answering is not None and not self.transport.is_closing():
            has_run = self._answering.is_read  # at least, it may have
            self._answering.refuse(ServerStoppedError(text) if has_run else CapacityError(text))
            self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    def refuse(self, refusal: HttpRefusal) -> None:
        """Refuses the client: answers its complete requests, sends the refusal, and closes when the client does, or soon."""
        if self._final_refusal is None and not self._has_hung_up and not self.transport.is_closing():
            self._final_refusal = refusal
            self._drop_unfinished()
            if self._answering is None and not self.transport.is_closing():
                self._write_final_refusal(refusal)
        self._settle()

    # Inside

    @property
    def _is_at_rest(self) -> bool:
        """Whether the next byte is the first of a request, to be answered at once."""
        return (
            self._answering is None
            and not self._is_reading_head
            and not self._unread
            and (self._reading is None or self._reading.is_read)
            and self._final_refusal is None
            and not (self._is_half_closed or self.flow.is_writing_paused or self.flow.is_reading_paused)
        )

    def _answer_known(self, known: KnownHead, data: bytes) -> None:
        """Answers a request that came as a whole, with a head that has been parsed before.

        The connection stays in its timeout queue: in most cases it would be back there at once.
        """
        registry = self._registry
        exchange = self._reading = ServerExchange(
            known.head, self, AnswerWriter(self.transport, registry.common_headers, known.head)
        )
        exchange.is_read = True
        direct = self._start(exchange, known.route)
        if direct is not None:
            direct.run(data[len(data) - known.route.num_bytes :])

    def _learn(self, direct: DirectRequest, raw_head: bytes, num_bytes: int) -> None:
        """Remembers the head of a direct request, if nothing else came with the request."""
        exchange, route = direct.exchange, direct.route
        if exchange.is_read and raw_head.startswith(b"POST ") and len(raw_head) + route.num_bytes == num_bytes:
            self._registry.known_heads.add(raw_head, KnownHead(exchange.head, route, num_bytes))

    def _run_direct(self) -> None:
        """Runs the direct request that is to be answered now, once it is read. Never while the parser runs."""
        direct, exchange = self._direct, self._answering
        if direct is not None and not direct.is_running and exchange is not None and exchange.is_read:
            direct.run(exchange.body())

    def _parse(self) -> None:
        """Parses received bytes until requests wait for their turn."""
        while self._unread and not self._waiting and self._final_refusal is None:
            size = max(_PIECE_BYTES, self._parser.num_missing_bytes)
            piece, self._unread = (
                self._unread[:size],
                self._unread[size:] or _NOTHING,  # an empty view would keep all of it
            )
            refusal = self._parser.feed(piece)
            if refusal is not None:
                self.refuse(refusal)
        if self._unread:
            self.flow.pause_reading()

    def _go_on(self) -> None:
        """Goes on after an answer that does not end the connection."""
        if self._waiting:
            self._start(self._waiting.popleft())
        self._parse()  # it may be the rest of that request
        if self._direct is not None:
            asyncio.get_running_loop().call_soon(self._run_direct)  # not here: its answer may come at once, then the next, ...
        if self._answering is None and self._final_refusal is not None:
            self._write_final_refusal(self._final_refusal)
        elif self._answering is None and self._is_half_closed:
            self._hang_up()
        self.flow.resume_reading()

    def _start(self, exchange: ServerExchange, route: Route | None = None) -> DirectRequest | None:
        """Begins to answer a request. Returns it if it is direct: then it has to be run once it is read."""
        self._answering = exchange
        if self._is_stopping and not self._waiting:
            exchange.writer.is_last = True
        registry, direct = self._registry, self._registry.direct
        if self.flow.is_writing_paused or direct is None:
            route = direct = None
        elif route is None:
            route = direct.route(exchange.head)
        is_urgent = route is None or route.head.timeout_s is not None
        if registry.shedding is not None and (is_urgent or direct is None or not direct.is_idle):
            refusal = registry.shedding.refusal(exchange.arrived_ns, partial(limit_s_of, exchange.head.headers))
            if refusal is not None and not self.flow.is_writing_paused:
                _write(exchange.writer, _refusal_of(refusal), exchange.ids)
                if registry.direct is not None:
                    registry.direct.refused(exchange, refusal)
                asyncio.get_running_loop().call_soon(self.on_answered)
                return None
        if route is None or direct is None:
            registry.start(exchange.run(registry.app))
            return None
        self._direct = DirectRequest(direct, route, exchange, self)
        return self._direct

    def _settle(self) -> None:
        is_new, self._is_new = self._is_new and self._is_reading_head, False
        self._timeouts.settle(is_new=is_new)

    def _may_read(self) -> bool:
        return not self._waiting and not self._unread and not self._is_half_closed

    def _drop_unfinished(self) -> None:
        """Abandons the request whose rest will not be read."""
        exchange = self._reading
        if exchange is None or exchange.is_read:
            return
        exchange.lose()
        if self._waiting:  # it is the last one
            self._waiting.pop()
            return
        if (
            exchange.writer.has_started
        ):  # another answer would be mistaken for a part of this one, or for that to the next request
            self.transport.close()
        self._answering = self._direct = None
        self._report_loss()

    def _write_final_refusal(self, refusal: HttpRefusal) -> None:
        _write(AnswerWriter(self.transport, self._registry.common_headers, None), refusal, Ids.made_up())
        self._hang_up()

    def _hang_up(self) -> None:
        """Closes the connection once the client has had time to read what was written.

        While the client is still sending, the connection must not be closed at once: the client's kernel would see a reset, and
        discard the answer.
        """
        self._waiting.clear()
        self._unread = _NOTHING
        is_sending = self._is_reading_head or not (self._reading is None or self._reading.is_read)
        if self._is_half_closed or (self._final_refusal is None and not is_sending):
            self.transport.close()
            return
        self._has_hung_up = True
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # not over TLS
            self.transport.write_eof()

    def _give_up_requests(self) -> None:
        """Gives up all requests, because their client is gone."""
        self._waiting.clear()
        self._unread = _NOTHING
        if self._answering is not None:
            self._answering.lose()
        if self._direct is not None:
            self._direct.lose()
        self._report_loss()

    def _report_loss(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


def _refusal_of(error: DyOrcError) -> HttpRefusal:
    retry_after_s = None if error.retry_after_s is None else round(error.retry_after_s)
    return HttpRefusal(status_of(error), error.code, str(error), retry_after_s)


def _write(writer: AnswerWriter, refusal: HttpRefusal, ids: Ids) -> None:
    is_retryable = refusal.retry_after_s is not None
    body = msgspec.json.encode(ErrorBody(refusal.text, refusal.code, is_retryable, ids.request_id, ids.trace_id))
    headers: list[Header] = [JSON, (b"content-length", b"%d" % len(body)), header_of(ids)]
    if is_retryable:
        headers.append((_RETRY_AFTER, b"%d" % refusal.retry_after_s))
    writer.start(refusal.status, headers)
    writer.write(body, is_last_part=True)
