# pyright: basic, reportMissingImports=false
# grpcio ships no types, and the extra nghttp may be missing.
"""A gRPC server on connections of our own: nghttp2 reads and writes HTTP/2, by its binding ngh2; calls run on the event loop.

It answers what `GrpcServer` answers, by the same handlers, for less processor time (docs/decisions/0120-http2.md). It has no TLS.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

import grpc
import ngh2
import structlog

from dyorc.config import GatewayConfig
from dyorc.gateway.grpc.call_heads import CallHeadCache, HeadFault
from dyorc.gateway.grpc.direct_calls import DirectModelInfer
from dyorc.gateway.grpc.handlers import Method, all_methods
from dyorc.gateway.grpc.http2_call import CallError
from dyorc.gateway.grpc.http2_stream import RESPONSE, Http2Stream
from dyorc.gateway.grpc.inference_calls import OpenStreams
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tls import refuse_open_address
from dyorc.system.log_throttle import LogThrottle
from dyorc.system.ports import OTHER_GRPC_PORT

_log = structlog.get_logger("dyorc.gateway")

_MAX_STREAMS = 1024
"""Concurrent calls on one connection; more wait at the client."""
_STREAM_WINDOW_BYTES, _CONNECTION_WINDOW_BYTES = 2**20, 4 * 2**20
_MAX_METADATA_BYTES = 16 * 2**10
"""Of one call; with more, it is refused."""
_MAX_READ_METADATA_BYTES = 2**16
"""With more, the connection ends: what is not read leaves both ends with different tables of headers."""
_MAX_UNSENT_BYTES = 2**20
"""A stream with more waits before its next message."""
_MAX_IDLE_BYTES = 2**20
"""A client that sends more than this without a call, its data or reading as much, sends frames that cost others time."""
_GREETING_S, _IDLE_S, _PING_S = 10.0, 600.0, 60.0
_NO_ERROR, _INTERNAL_ERROR = 0, 2
_BACKLOG = 4096
"""Clients that may connect at once, as to HTTP."""
_SETTINGS = {3: _MAX_STREAMS, 4: _STREAM_WINDOW_BYTES, 6: _MAX_METADATA_BYTES}
_CONFIGURATION = ngh2.Configuration(auto_window_update=False, max_inbound_header_list_size=_MAX_READ_METADATA_BYTES)


class Http2Server:
    """Serves gRPC while entered, as `GrpcServer` does.

    Args:
        service: Runs requests.
        config: Host and port. By default the port is the one after HTTP's, or any free port if that is 0.
        is_port_shared: Whether other processes of this server listen there, too.

    Attributes:
        address: Where it listens, e.g. ``127.0.0.1:8001``; set once entered.
    """

    def __init__(self, service: InferenceService, config: GatewayConfig, *, is_port_shared: bool = False) -> None:
        self._config = config
        self._is_port_shared = is_port_shared
        self._streams = OpenStreams()
        self._methods = all_methods(service, self._streams, DirectModelInfer(service))
        self._heads = CallHeadCache()
        self._connections: set[_Connection] = set()
        self._cut_off = LogThrottle(_log, "client_cut_off")
        self.address = ""

    async def __aenter__(self) -> Self:
        """Starts listening.

        Raises:
            ConfigurationError: If it may not listen there.
            OSError: If the address is not available. The message names it.
        """
        refuse_open_address(self._config)
        host, port = self._config.host, self._config.grpc_port_to_bind
        loop, is_shared = asyncio.get_running_loop(), self._is_port_shared or None
        try:
            self._server = await loop.create_server(self._connection, host, port, reuse_port=is_shared, backlog=_BACKLOG)
        except OSError as error:
            reason = error.strerror or error
            raise OSError(error.errno, f"cannot serve gRPC on {host}:{port}: {reason}; {OTHER_GRPC_PORT}") from error
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return self

    def _connection(self) -> "_Connection":
        return _Connection(self._methods, self._heads, self._config, self._connections, self._cut_off)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.drain(self._config.drain_timeout_s)

    async def drain(self, timeout_s: float) -> None:
        """Refuses new requests, and waits for those in flight. They are cancelled after `timeout_s`."""
        self._streams.stop()
        self._server.close()
        for connection in list(self._connections):
            connection.go_away()
        calls = [end for connection in self._connections for end in connection.ends()]
        if calls:
            _, pending = await asyncio.wait(calls, timeout=timeout_s)
            for call in pending:
                call.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        for connection in list(self._connections):
            connection.close()


class _Connection(asyncio.Protocol):
    """One client."""

    _transport: asyncio.Transport

    def __init__(
        self, methods: dict[str, Method], heads: CallHeadCache, config: GatewayConfig, all_connections: set["_Connection"],
        cut_off: LogThrottle,
    ) -> None:  # fmt: skip
        self._methods = methods
        self._heads = heads
        self._config = config
        self._all = all_connections
        self._cut_off = cut_off
        self._loop = asyncio.get_running_loop()
        self._http2 = ngh2.Connection(ngh2.Role.SERVER, _CONFIGURATION)
        self._calls: dict[int, Http2Stream] = {}
        self._is_reading = self._is_paused = self._is_due = self._is_pinged = self._is_greeted = False
        self._heard_s = self._loop.time()
        self._num_idle_bytes = 0
        self._can_send = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._num_read_before: int | None = None
        self._reading_timer: asyncio.TimerHandle | None = None
        self._num_sent = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            ngh2.SettingsReceived: self._greet,
            ngh2.RequestReceived: self._begin,
            ngh2.DataReceived: self._receive,
            ngh2.TrailersReceived: lambda event: self._end_input(event.stream_id),
            ngh2.StreamReset: lambda event: self._forget(event.stream_id),
            ngh2.StreamClosed: lambda event: self._forget(event.stream_id),
        }

    def ends(self) -> list[asyncio.Future[None]]:
        """Returns for each call that is being answered what is done when it has been; cancelling that cancels the call."""
        return [stream.end() for stream in self._calls.values() if stream.is_answering]

    # As a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._all.add(self)
        self._http2.initiate_connection(_SETTINGS)
        self._http2.set_local_window_size(_CONNECTION_WINDOW_BYTES)
        self.flush()
        self._timer = self._loop.call_later(_GREETING_S, self._check_greeting)
        self._reading_timer = self._loop.call_later(self._config.write_timeout_s, self._check_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)
        for timer in (self._timer, self._reading_timer):
            if timer is not None:
                timer.cancel()
        for stream_id in list(self._calls):
            self._forget(stream_id)

    def data_received(self, data: bytes) -> None:
        self._heard_s, self._is_pinged, self._is_reading = self._loop.time(), False, True
        try:
            self._http2.receive_data(data)
            self._num_idle_bytes += len(data)
            for event in self._http2.events():
                if (handle := self._handlers.get(type(event))) is not None:
                    handle(event)
        except ngh2.NGH2Error as error:
            _log.debug("http2_refused", error=str(error))
            with contextlib.suppress(ngh2.NGH2Error):  # it may say goodbye, or nothing any longer
                self.flush()
            self._transport.close()
            return
        finally:
            self._is_reading = False
        self.flush()
        if self._num_idle_bytes > _MAX_IDLE_BYTES:
            _log.warning("http2_refused", error="a client sends frames without calls")
            self._transport.abort()
        elif not self._http2.want_read and not self._http2.want_write:
            self._transport.close()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.flush()

    def flush_soon(self) -> None:
        """Sends what is to be sent at the end of this turn, together with what else comes until then."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Sends what may be sent now."""
        self._is_due = False
        if self._is_paused or self._transport.is_closing():
            return
        if data := self._http2.data_to_send():
            self._transport.write(data)
            self._num_sent += len(data)
            self._num_idle_bytes = max(0, self._num_idle_bytes - len(data))
        self._can_send.set()

    async def wait_for_room(self, stream_id: int) -> None:
        """Returns once little of what a stream has written is still unsent."""
        while stream_id in self._calls and self._http2.queued_body_size(stream_id) > _MAX_UNSENT_BYTES:
            self._can_send.clear()
            await self._can_send.wait()

    def go_away(self) -> None:
        """Accepts no new calls."""
        with contextlib.suppress(ngh2.NGH2Error):
            self._http2.send_goaway(_NO_ERROR)
        self.flush()

    def close(self) -> None:
        """Ends it once what was written is sent."""
        self.flush()
        self._transport.close()

    # Clients that are silent

    def _greet(self, event: Any) -> None:
        self._is_greeted = True

    def _check_greeting(self) -> None:
        if not self._is_greeted:
            self._transport.abort()
            return
        self._timer = self._loop.call_later(_PING_S, self._look)

    def _look(self) -> None:
        """Pings a client that is silent, and drops one that does not answer, or has been idle for long."""
        silent_s = self._loop.time() - self._heard_s
        if self._is_pinged or (not self._calls and silent_s > _IDLE_S):
            self._transport.abort()
            return
        if silent_s >= _PING_S and self._calls:
            self._is_pinged = True
            self._http2.ping()
            self.flush()
        self._timer = self._loop.call_later(_PING_S / 3 if self._is_pinged else _PING_S, self._look)

    def _check_reading(self) -> None:
        """Drops a client that reads too little of its answers, which would stay in memory."""
        period_s, num_read = self._config.write_timeout_s, None
        if self._is_paused or self._http2.queued_body_size() > 0:
            num_read = self._num_sent - self._transport.get_write_buffer_size()
            expected = period_s * self._config.min_bytes_per_s
            if self._num_read_before is not None and num_read - self._num_read_before < expected:
                text = f"it read too little of its answers for {period_s:g} s (gateway.write_timeout_s)"
                self._cut_off.report(peer=str(self._transport.get_extra_info("peername")), cause=text)
                self._transport.abort()
                return
        self._num_read_before = num_read
        self._reading_timer = self._loop.call_later(period_s, self._check_reading)

    # Calls

    def _begin(self, event: Any) -> None:
        stream_id, head = event.stream_id, self._heads.read(event.headers)
        self._num_idle_bytes = 0
        arrived_ns = time.monotonic_ns()
        if head.fault is not None:
            self._refuse_head(stream_id, head.fault)
            return
        if head.num_bytes > _MAX_METADATA_BYTES:
            text = f"the metadata takes {head.num_bytes} bytes, expected at most {_MAX_METADATA_BYTES}"
            self.refuse(stream_id, CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
            return
        if (method := self._methods.get(head.path)) is None:
            self.refuse(stream_id, CallError(grpc.StatusCode.UNIMPLEMENTED, f"there is no method {head.path}"))
            return
        call_of = (self._http2, stream_id, method, arrived_ns, head, self._config.max_request_bytes)
        stream = self._calls[stream_id] = Http2Stream(self, *call_of)
        if (left_s := stream.time_remaining()) is not None:
            stream.timer = self._loop.call_later(left_s, self._expire, stream_id)
        if method.is_streaming:
            stream.begin()
        if event.end_stream:
            self._end_input(stream_id)

    def _refuse_head(self, stream_id: int, fault: HeadFault) -> None:
        """Answers what is no call of gRPC, as grpcio does; another content type, which grpcio takes, as specified."""
        match fault:
            case HeadFault.NOT_GRPC:
                self._http2.send_response(stream_id, [(b":status", b"415")], end_stream=True)
            case HeadFault.NOT_A_CALL:
                self._http2.reset_stream(stream_id, _INTERNAL_ERROR)
            case _:
                self.refuse(stream_id, CallError(grpc.StatusCode.INTERNAL, f"Error parsing '{fault.value}' metadata"))

    def _receive(self, event: Any) -> None:
        if event.data:
            self._num_idle_bytes = 0
        stream = self._calls.get(event.stream_id)
        if stream is None:  # it has been answered
            self.acknowledge(len(event.data), event.stream_id)
            return
        try:
            stream.receive(event.data, is_last=event.end_stream)
        except CallError as error:
            self.give_up(event.stream_id, error)

    def _end_input(self, stream_id: int) -> None:
        if (stream := self._calls.get(stream_id)) is not None:
            stream.end_input()

    def acknowledge(self, num_bytes: int, stream_id: int) -> None:
        """Lets the client send so many more bytes."""
        try:  # `contextlib.suppress` would cost each call more than this
            self._http2.acknowledge_received_data(num_bytes, stream_id)
        except ngh2.NGH2Error as error:  # the client has gone
            _log.debug("not_acknowledged", error=str(error))

    def refuse(self, stream_id: int, error: CallError, *, has_begun: bool = False) -> None:
        """Ends a call with an error."""
        with contextlib.suppress(ngh2.NGH2Error):
            if has_begun:
                self._http2.send_trailers(stream_id, error.trailers)
            else:
                self._http2.send_response(stream_id, [*RESPONSE, *error.trailers], end_stream=True)
        self.flush_soon()

    def has(self, stream_id: int) -> bool:
        """Returns whether a call has neither been answered nor given up."""
        return stream_id in self._calls

    def finish(self, stream_id: int) -> None:
        """Forgets a call that was answered."""
        if (stream := self._calls.pop(stream_id, None)) is not None:
            stream.finish()

    def on_answered(self, stream_id: int) -> None:
        """Sends an answer that is written as a whole, and forgets its call."""
        self.finish(stream_id)
        if not self._calls:
            self.flush()
        elif not self._is_reading:  # others may be answered in this turn as well; what is read ends with a flush
            self.flush_soon()

    def _forget(self, stream_id: int) -> None:
        """Forgets a call, and cancels what answers it."""
        if (stream := self._calls.pop(stream_id, None)) is not None:
            stream.cancel()
            self._can_send.set()

    def give_up(self, stream_id: int, error: CallError) -> None:
        """Ends a call with an error, and the work for it."""
        has_begun = self._calls[stream_id].has_begun
        self._forget(stream_id)
        self.refuse(stream_id, error, has_begun=has_begun)

    def _expire(self, stream_id: int) -> None:
        self.give_up(stream_id, CallError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))
