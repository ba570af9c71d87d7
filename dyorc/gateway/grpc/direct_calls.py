# pyright: basic
# grpcio ships no types.
"""Calls of `ModelInfer` whose message is like one before: no task, no coroutine, no protobuf.

A client sends the same message again and again, with other numbers in it (`message_templates.py`). Such a call is answered by a
`DirectCall`: it hands its inputs to the backend, which calls back with the outputs. All others are answered by
`inference_calls.py`, with the same results.

Runs in the event loop's thread only.
"""

from typing import Any, Protocol

from dyorc.core.arrays import Array
from dyorc.errors import DyOrcError
from dyorc.gateway.admission import Ticket
from dyorc.gateway.copies import join_buffers
from dyorc.gateway.grpc.call_context import check_in_time, limit_s_of, tenant_of
from dyorc.gateway.grpc.call_heads import CallHead
from dyorc.gateway.grpc.encoding import encode_response
from dyorc.gateway.grpc.message_templates import MAX_MESSAGE_BYTES, MessageTemplate, MessageTemplateCache
from dyorc.gateway.grpc.wire import framed
from dyorc.gateway.origins import Arrival, note_written
from dyorc.gateway.request_ids import Ids, headers_in_metadata, ids_in_metadata
from dyorc.gateway.request_parameters import priority_in_headers
from dyorc.gateway.service import InferenceService
from dyorc.protocol.header_names import REQUEST_ID
from dyorc.telemetry.record import Origin


class DirectModelInfer:
    """Decides which calls of `ModelInfer` are direct.

    Args:
        service: Runs requests.

    Attributes:
        templates: Of the messages that were answered otherwise.
    """

    def __init__(self, service: InferenceService) -> None:
        self.service = service
        self.templates = MessageTemplateCache(service.catalog)
        self._max_bytes = min(MAX_MESSAGE_BYTES, service.backend.tensors.inline_limit_bytes)

    def template(self, message: bytes) -> MessageTemplate | None:
        """Returns the template of a message that is answered directly; None if it is not."""
        if len(message) > self._max_bytes or (template := self.templates.find(message)) is None:
            return None
        catalog, version, of_template = self.service.catalog, template.version, template.layout.model
        if version is None and of_template.name in catalog.splits:
            return None
        try:
            model = catalog.model(of_template.name, version)
        except DyOrcError:
            return None
        return template if model is of_template and not model.is_streaming else None


class DirectStream(Protocol):
    """The stream of a call: its context, and where its answer goes.

    Attributes:
        head: What its headers say.
        deadline_s: When it has to be answered, on the monotonic clock; None: at no time.
    """

    head: CallHead
    deadline_s: float | None

    def time_remaining(self) -> float | None:
        """Returns how long the call may still take, in seconds; None without a deadline."""
        ...

    def invocation_metadata(self) -> Any:
        """Returns the call's metadata."""
        ...

    def answer(self, message: bytes, metadata: tuple[tuple[str, str], ...]) -> None:
        """Ends the call with a message, as gRPC frames it, and with trailing metadata."""
        ...

    def refuse(self, error: Exception, ids: Ids) -> None:
        """Ends the call with an error."""
        ...


class DirectCall:
    """One direct call. It receives its own answer (`dyorc.core.request`), and knows its ids and headers (`RequestSender`).

    Args:
        direct: What all calls share.
        template: That the message fits.
        message: The request.
        stream: The call's.
        arrived_ns: When it was accepted.
    """

    __slots__ = (
        "_arrived_ns", "_direct", "_ids", "_is_left_out", "_is_lost", "_message", "_origin", "_request_id", "_stream",
        "_template", "_tenant", "_ticket",
    )  # fmt: skip

    def __init__(
        self, direct: DirectModelInfer, template: MessageTemplate, message: bytes, stream: DirectStream, arrived_ns: int
    ) -> None:
        self._direct = direct
        self._template = template
        self._message = message
        self._stream = stream
        self._arrived_ns = arrived_ns
        self._ids: Ids | None = None
        self._ticket: Ticket | None = None
        self._origin: Origin | None = None
        self._request_id = 0
        self._tenant = ""
        self._is_lost = self._is_left_out = False

    @property
    def ids(self) -> Ids:
        """The request's ids. Made when they are first needed."""
        if self._ids is None:
            self._ids = ids_in_metadata(self._stream) if self._stream.head.is_named else Ids.made_up()
        return self._ids

    @property
    def sent_headers(self) -> Any:
        """The call's metadata."""
        return headers_in_metadata(self._stream)

    def run(self) -> None:
        """Runs the request. Its answer may be there before this returns."""
        service, stream, layout = self._direct.service, self._stream, self._template.layout
        request, message = layout.request, self._message
        try:
            if stream.deadline_s is not None or request.timeout_s is not None or service.admission.num_requests:
                check_in_time(service.shedding, stream, self._arrived_ns)
            tenant = tenant_of(service.access, stream)
            self._tenant = tenant.name
            ticket = self._ticket = service.admission.admit(tenant, len(message))
            ticket.arrived_ns = self._arrived_ns
            ticket.sender = self
            tenant.check_model(layout.model.name)
            arrays = layout.arrays(message)
            self._note_origin()
            self._request_id = service.submit(
                ticket, layout.model, arrays, request, self,
                timeout_s=None if stream.deadline_s is None else limit_s_of(stream, self._arrived_ns),
                priority=0 if stream.head.is_plain else priority_in_headers(self.sent_headers), origin=self._origin, body=None,
            )  # fmt: skip
        except Exception as error:
            self.failed(error)

    def lose(self) -> None:
        """Cancels the request, because nobody waits for its answer any longer."""
        self._is_lost = True
        if self._request_id and self._ticket is not None and self._direct.service.cancel(self._request_id):
            self._close()

    # Receiver

    def take(self, arrays: list[Array], /) -> bytes:
        """Encodes the outputs, as gRPC frames a message."""
        layout = self._template.layout
        self._direct.service.check_answer(layout.model, arrays)
        answer = self._template.answer(arrays)
        return join_buffers(framed(encode_response(layout.model, layout.request, arrays))) if answer is None else answer

    def done(self, taken: bytes) -> None:
        self._close()
        if self._is_lost:
            return
        is_given = self._stream.head.is_named and self.ids.is_given
        self._stream.answer(taken, ((REQUEST_ID, self.ids.request_id),) if is_given else ())
        note_written(self._origin)

    def failed(self, error: Exception) -> None:
        self._close()
        if not self._request_id:  # otherwise the orchestrator records it
            origins, name = self._direct.service.origins, self._template.layout.model.name
            self.ids.is_left_out = self._is_left_out
            origins.record_refusal(self._arrival(), error, lambda: name, self._tenant)
        if not self._is_lost:
            self._stream.refuse(error, self.ids)

    # Inside

    def _note_origin(self) -> None:
        origins = self._direct.service.origins
        traced = origins.traced_by_metadata(self._stream)
        if origins.wants(self._template.layout.request, traced):
            self._origin = origins.new(self._arrival().traced_as(traced))
        else:
            self._is_left_out = True

    def _arrival(self) -> Arrival:
        return Arrival.read_now("grpc", self.ids, self._arrived_ns, len(self._message))

    def _close(self) -> None:
        if self._ticket is not None:
            self._ticket.release()
            self._ticket = None
