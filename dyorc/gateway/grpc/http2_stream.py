# pyright: basic, reportMissingImports=false
# grpcio ships no types, and the extra nghttp may be missing.
"""One gRPC call on a connection of our own, from its headers to the end of its answer. Runs in the event loop's thread only."""

import asyncio
import time
from typing import Protocol

import grpc
import ngh2
import structlog

from dyorc.gateway.grpc.call_heads import CallHead
from dyorc.gateway.grpc.direct_calls import DirectCall, DirectModelInfer
from dyorc.gateway.grpc.grpc_errors import refusal_of
from dyorc.gateway.grpc.handlers import Method
from dyorc.gateway.grpc.http2_call import (
    CallError,
    Http2Call,
    Metadata,
    seconds_until,
    trailers_of,
    whole_message,
)
from dyorc.gateway.grpc.message_templates import MessageTemplate
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
    """A call and its answer. To a direct call it is also the call's context, as to handlers `Http2Call` is.

    Attributes:
        head: What the call's headers say.
        deadline_s: When it has to be answered, on the monotonic clock; None: at no time.
        task: Runs its handler; None if there is none, or not yet.
        timer: Fires at its deadline.
        has_begun: Whether the answer's headers are sent.
    """

    __slots__ = (
        "_arrived_ns", "_call", "_connection", "_direct", "_end", "_http2", "_max_message_bytes", "_method", "_stream_id",
        "deadline_s", "has_begun", "head", "task", "timer",
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
        self._max_message_bytes = max_message_bytes
        self._direct: DirectCall | None = None
        self._call: Http2Call | None = None
        self._end: asyncio.Future[None] | None = None  # of a direct call, once the server stops
        self.head = head
        self.deadline_s = None if head.timeout_s is None else time.monotonic() + head.timeout_s
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.has_begun = False

    @property
    def call(self) -> Http2Call:
        """The call, for its handler. Made when it is first needed: a direct call needs none."""
        if self._call is None:
            is_streaming = self._method.is_streaming
            self._call = Http2Call(self, self.head, self.deadline_s, self._max_message_bytes, is_streaming=is_streaming)
        return self._call

    @property
    def is_answering(self) -> bool:
        """Whether its answer is being made."""
        return self.task is not None or self._direct is not None

    def receive(self, data: bytes, *, is_last: bool) -> None:
        """Takes bytes of its messages.

        Raises:
            CallError: If a message is too large, or cannot be decompressed.
        """
        if is_last and self._call is None and self._method.direct is not None:
            message = whole_message(data, self._max_message_bytes)
            if message is not None and (template := self._method.direct.template(message)) is not None:
                self._connection.acknowledge(len(data), self._stream_id)
                self._begin_directly(self._method.direct, template, message)
                return
        self.call.feed(data)
        if is_last:
            self.end_input()

    def end_input(self) -> None:
        """Handles that no further message comes. Begins to answer, if that has not begun."""
        call, direct = self.call, self._method.direct
        call.end()
        if self.is_answering:
            return
        message = None if direct is None else call.ready_message()
        template = None if direct is None or message is None else direct.template(message)
        if direct is None or message is None or template is None:
            self.begin()
        else:
            self._begin_directly(direct, template, message)

    def begin(self) -> None:
        """Begins to answer by the handler."""
        self.task = asyncio.get_running_loop().create_task(self.run())

    def _begin_directly(self, direct: DirectModelInfer, template: MessageTemplate, message: bytes) -> None:
        self._direct = DirectCall(direct, template, message, self, self._arrived_ns)
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

    def time_remaining(self) -> float | None:
        return seconds_until(self.deadline_s)

    def invocation_metadata(self) -> Metadata:
        return self.head.metadata

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
