# pyright: basic, reportMissingImports=false
# grpcio ships no types, and the extra nghttp may be missing.
"""One gRPC call on a connection of our own, from its headers to the end of its answer. Runs in the event loop's thread only."""

import asyncio
from typing import Protocol

import grpc
import ngh2
import structlog

from dyorc.gateway.grpc.call_heads import CallHead
from dyorc.gateway.grpc.direct_calls import DirectCall
from dyorc.gateway.grpc.grpc_errors import refusal_of
from dyorc.gateway.grpc.handlers import Method
from dyorc.gateway.grpc.http2_call import CallError, Http2Call, Metadata, trailers_of
from dyorc.gateway.request_ids import Ids

_log = structlog.get_logger("dyorc.gateway")

RESPONSE = ((b":status", b"200"), (b"content-type", b"application/grpc"))
"""The headers of an answer."""
_OK = ((b"grpc-status", b"0"),)


class StreamConnection(Protocol):
    """The connection, for a call."""

    def acknowledge(self, num_bytes: int, stream_id: int) -> None:
        """Lets the client send so many more bytes."""
        ...

    def flush_soon(self) -> None:
        """Sends what is to be sent at the end of this turn."""
        ...

    async def wait_for_room(self, stream_id: int) -> None:
        """Returns once little of what a stream has written is still unsent."""
        ...

    def has(self, stream_id: int) -> bool:
        """Returns whether a call has neither been answered nor given up."""
        ...

    def finish(self, stream_id: int) -> None:
        """Forgets a call that was answered."""
        ...

    def on_answered(self, stream_id: int) -> None:
        """Sends an answer that is written as a whole, and forgets its call."""
        ...

    def refuse(self, stream_id: int, error: CallError, *, has_begun: bool = False) -> None:
        """Ends a call with an error."""
        ...

    def give_up(self, stream_id: int, error: CallError) -> None:
        """Ends a call with an error, and the work for it."""
        ...


class Http2Stream:
    """A call and its answer.

    Attributes:
        call: The call.
        task: Runs its handler; None if there is none, or not yet.
        timer: Fires at its deadline.
        has_begun: Whether the answer's headers are sent.
    """

    __slots__ = (
        "_arrived_ns", "_connection", "_direct", "_end", "_http2", "_method", "_stream_id", "call", "has_begun", "task", "timer",
    )  # fmt: skip

    def __init__(
        self, connection: StreamConnection, http2: ngh2.Connection, stream_id: int, method: Method, arrived_ns: int,
        head: CallHead, max_message_bytes: int,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._http2 = http2
        self._stream_id = stream_id
        self._method = method
        self._arrived_ns = arrived_ns
        self._direct: DirectCall | None = None
        self._end: asyncio.Future[None] | None = None  # of a direct call, once the server stops
        self.call = Http2Call(self, head, max_message_bytes, is_streaming=method.is_streaming)
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.has_begun = False

    @property
    def is_answering(self) -> bool:
        """Whether its answer is being made."""
        return self.task is not None or self._direct is not None

    def begin(self) -> None:
        """Begins to answer a call whose request is whole."""
        direct, call = self._method.direct, self.call
        message = None if direct is None else call.ready_message()
        template = None if direct is None or message is None else direct.template(message)
        if direct is None or message is None or template is None:
            self.task = asyncio.get_running_loop().create_task(self.run())
            return
        self._direct = DirectCall(direct, template, message, call, call.head.is_named, self._arrived_ns, self)
        self._direct.run()

    def end(self) -> asyncio.Future[None]:
        """Returns what is done when it has been answered; cancelling that cancels it."""
        if self.task is not None:
            return self.task
        self._end = asyncio.get_running_loop().create_future()
        self._end.add_done_callback(self._stop)
        return self._end

    def _stop(self, end: asyncio.Future[None]) -> None:
        """Ends a direct call, because the server stops."""
        if end.cancelled() and self._connection.has(self._stream_id):
            error = CallError(grpc.StatusCode.CANCELLED, "")
            self._connection.give_up(self._stream_id, error)

    def finish(self) -> None:
        """Handles that nothing more is to be done for it."""
        self._direct = None  # which holds it
        if self.timer is not None:
            self.timer.cancel()
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    def cancel(self) -> None:
        """Ends the work for it."""
        if self._direct is not None:
            self._direct.lose()
        self.finish()
        if self.task is not None:
            self.task.cancel()

    # For direct calls

    def answer(self, message: bytes, metadata: Metadata) -> None:
        try:
            self._http2.send_response(self._stream_id, RESPONSE)
            self._http2.send_data(self._stream_id, message)
            self._http2.send_trailers(self._stream_id, trailers_of(grpc.StatusCode.OK, "", metadata) if metadata else _OK)
        except ngh2.NGH2Error as error:  # the client has gone
            _log.debug("answer_not_sent", error=str(error))
        self._connection.on_answered(self._stream_id)

    def refuse(self, error: Exception, ids: Ids) -> None:
        self._connection.refuse(self._stream_id, CallError(*refusal_of(error, "ModelInfer", ids)))
        self._connection.finish(self._stream_id)

    # For others

    def acknowledge(self, num_bytes: int) -> None:
        self._connection.acknowledge(num_bytes, self._stream_id)

    async def send_message(self, message: bytes) -> None:
        self._send(message)
        self._connection.flush_soon()
        await self._connection.wait_for_room(self._stream_id)

    async def run(self) -> None:
        """Runs the call's handler and sends its answer. An error becomes a status."""
        call, method = self.call, self._method
        try:
            if method.is_streaming:
                await method.handle(call, call)
            elif method.is_timed:
                self._send(await method.handle(self._arrived_ns, call.only_message(), call))
            else:
                self._send(await method.handle(call.only_message(), call))
            if not self.has_begun:
                self._http2.send_response(self._stream_id, [*RESPONSE, *trailers_of(grpc.StatusCode.OK)], end_stream=True)
            else:
                more = call.trailing_metadata
                self._http2.send_trailers(self._stream_id, trailers_of(grpc.StatusCode.OK, "", more) if more else _OK)
            self._connection.flush_soon()
        except CallError as error:
            self._connection.refuse(self._stream_id, error, has_begun=self.has_begun)
        except ngh2.NGH2Error as error:  # the client has gone
            _log.debug("answer_not_sent", error=str(error))
        except asyncio.CancelledError:
            if self._connection.has(self._stream_id):  # the server stops
                self._connection.refuse(self._stream_id, CallError(grpc.StatusCode.CANCELLED, ""), has_begun=self.has_begun)
            raise
        except Exception as error:
            _log.error("request_crashed", exc_info=error)
            self._connection.refuse(
                self._stream_id, CallError(grpc.StatusCode.UNKNOWN, "internal error"), has_begun=self.has_begun
            )
        finally:
            self._connection.finish(self._stream_id)

    def _send(self, message: bytes) -> None:
        if not self.has_begun:
            self.has_begun = True
            self._http2.send_response(self._stream_id, RESPONSE)
        self._http2.send_data(self._stream_id, b"\0" + len(message).to_bytes(4) + message)
