"""Small inference requests, answered without ASGI: no task, no coroutine, no scope, no messages.

Most requests are alike: a few KB to ``/infer``, with the body in one piece and the answer in another. For these, the connection
calls `DirectRequest.run` once the request is read, and the backend calls back with the outputs. All other requests take the ASGI
route (`inference_routes.py`), with the same results.

Runs in the event loop's thread only.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import structlog

from dyorc.core.arrays import Array
from dyorc.errors import AuthenticationError, DyOrcError, InvalidInputError
from dyorc.gateway.admission import Ticket
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.http_errors import status_of
from dyorc.gateway.codec.inference_json import decode_request
from dyorc.gateway.codec.json_outputs import encode_response
from dyorc.gateway.http.authentication import CHALLENGE, key_in
from dyorc.gateway.http.compression import MIN_BYTES
from dyorc.gateway.http.heads import RequestHead, read_head, target_of
from dyorc.gateway.http.inference_answers import VARY, answer_lines, write_answer, write_error
from dyorc.gateway.http.request_parser import ParsedHead
from dyorc.gateway.http.request_templates import RequestTemplate, RequestTemplateCache
from dyorc.gateway.http.server_exchange import ConnectionLike, ServerExchange
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.origins import Arrival, note_written, steps_of
from dyorc.gateway.request_ids import id_line, trace_header
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.service import InferenceService
from dyorc.protocol.api_paths import INFER
from dyorc.telemetry.record import Origin

_log = structlog.get_logger("dyorc.gateway")

_MAX_BODY_BYTES = 64 * 2**10
"""Longer bodies come in several pieces, and their tensors may go to shared memory as they arrive."""
_MAX_ANSWER_BYTES = 64 * 2**10
"""Longer answers are written in pieces, as the client reads them."""

EncodedAnswer: TypeAlias = tuple[bytes, Sequence[bytes | memoryview], int | None]
"""An answer: its own headers, encoded; its body; and the length of the JSON in it, if tensors follow."""


class Route(NamedTuple):
    """What the head of a direct request contains."""

    model: str
    version: str | None
    head: RequestHead
    num_bytes: int
    key: str | None


class DirectConnection(ConnectionLike, Protocol):
    """The connection, for a direct request."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Lets a task answer the request."""


class DirectInference:
    """Decides which requests are direct, and runs them.

    Args:
        service: Runs requests.
    """

    def __init__(self, service: InferenceService) -> None:
        self.service = service
        self.templates = RequestTemplateCache(service.catalog)
        config = service.config
        self._max_bytes = min(_MAX_BODY_BYTES, config.max_request_bytes, service.backend.tensors.inline_limit_bytes)

    @property
    def is_idle(self) -> bool:
        return not self.service.admission.num_requests

    def refused(self, exchange: ServerExchange, error: DyOrcError) -> None:
        """Records a request that was refused before it was read."""
        target = target_of(exchange.head.path)
        if target is not None:
            arrival = Arrival("http", exchange.ids, exchange.arrived_ns, 0, exchange.read_ns)
            self.service.origins.record_refusal(arrival, error, lambda: target.model)

    def route(self, head: ParsedHead) -> Route | None:
        """Returns where a request goes; None if it is not direct."""
        target = target_of(head.path) if head.method == "POST" else None
        if target is None or target.action != INFER or head.version == "1.0" or head.expects_continue:
            return None
        model = self.service.catalog.models.get(target.model)
        if model is None or model.is_streaming:
            return None
        try:
            read = read_head(head.headers)
        except InvalidInputError:
            return None
        num_bytes = read.announced_bytes
        if num_bytes is None or num_bytes > self._max_bytes or read.encoding is not None:
            return None
        return Route(target.model, target.version, read, num_bytes, key_in(head.headers))


class DirectRequest:
    """One direct request. It receives its own answer (`dyorc.core.request`).

    Args:
        exchange: Holds the request, and takes its answer.
        connection: The connection.

    Attributes:
        route: What its head says.
        is_running: Whether it has been started.
    """

    __slots__ = (
        "_connection", "_inference", "_memory", "_model", "_origin", "_request", "_request_id", "_template", "_tenant",
        "_ticket", "exchange", "is_running", "route",
    )  # fmt: skip

    _model: Model
    _request: InferRequest

    def __init__(self, inference: DirectInference, route: Route, exchange: ServerExchange, connection: DirectConnection) -> None:
        self._inference = inference
        self.route = route
        self.exchange = exchange
        self._connection = connection
        self._ticket: Ticket | None = None
        self._memory: RequestMemory | None = None
        self._template: RequestTemplate | None = None
        self._origin: Origin | None = None
        self._request_id = 0
        self._tenant = ""
        self.is_running = False

    def run(self, body: bytes) -> None:
        """Runs the request, now that all of it is here, unless its client has gone."""
        self.is_running = True
        if self.exchange.is_lost:
            return
        service, route = self._inference.service, self.route
        try:
            tenant = service.access.tenant_of(route.key)
            self._tenant = tenant.name
            model = self._model = service.model(tenant, route.model, route.version, self.exchange.head.headers)
            ticket = self._ticket = service.admission.admit(tenant, route.num_bytes)
            ticket.sender = self.exchange
            arrays = self._decode(body)
            request = self._request
            exchange = self.exchange
            traced = service.origins.traced(route.head.caller)
            if service.origins.wants(request, traced):
                arrival = Arrival("http", exchange.ids, exchange.arrived_ns, route.num_bytes, exchange.read_ns, traced)
                self._origin = service.origins.new(arrival)
            if request.timeout_s is not None or route.head.timeout_s is not None:
                ticket.arrived_ns = self.exchange.arrived_ns
            memory = self._memory
            self._request_id = service.submit(
                ticket, model, arrays, request, self,
                timeout_s=route.head.timeout_s, priority=route.head.priority, origin=self._origin,
                body=None if memory is None else memory.body,
            )  # fmt: skip
        except Exception as error:
            self.failed(error)

    def lose(self) -> None:
        """Cancels the request, because its client is gone."""
        if self._request_id and self._ticket is not None and self._inference.service.cancel(self._request_id):
            self._close()

    # Receiver

    def take(self, arrays: list[Array], /) -> EncodedAnswer:
        """Encodes the outputs."""
        self._inference.service.check_answer(self._model, arrays)
        if self._template is not None and (answer := self._template.answer(arrays)) is not None:
            return answer
        request = self._request
        steps = steps_of(request, self._origin)
        parts, json_bytes = encode_response(self._model, request.request_id, request.outputs, arrays, steps)
        return answer_lines(sum(map(len, parts)), json_bytes), parts, json_bytes

    def done(self, taken: EncodedAnswer) -> None:
        self._close()
        exchange, connection = self.exchange, self._connection
        if exchange.is_lost:
            return
        if connection.transport.is_closing():  # the connection has not been notified of its end yet
            connection.on_answered()
            return
        try:
            self._write_answer(taken)
        except Exception:  # it may be written in part, so nothing may follow
            _log.exception("answer_not_written", model=self.route.model, **exchange.ids.facts)
            connection.give_up()

    def _write_answer(self, taken: EncodedAnswer) -> None:
        exchange, connection, head = self.exchange, self._connection, self.route.head
        lines, parts, json_bytes = taken
        num_bytes = 0
        for part in parts:
            num_bytes += len(part)
        is_compressed = head.answer_encoding is not None and num_bytes >= MIN_BYTES
        if num_bytes > _MAX_ANSWER_BYTES or is_compressed or exchange.writer.is_last or connection.flow.is_writing_paused:
            connection.start(_write(exchange, head, parts, json_bytes, self._origin))
        else:
            if head.request_id or exchange.has_given_id:
                lines += id_line(exchange.ids)
            if (self._origin is not None or head.caller is not None) and (header := trace_header(exchange.ids)) is not None:
                lines += b"%b: %b\r\n" % header
            exchange.writer.write_whole(lines + VARY if head.negotiates else lines, parts)
            note_written(self._origin)
            connection.on_answered()

    def failed(self, error: Exception) -> None:
        self._close()
        status = status_of(error) if isinstance(error, DyOrcError) else 500
        if not isinstance(error, DyOrcError):
            _log.error("request_crashed", model=self.route.model, exc_info=error, **self.exchange.ids.facts)
        elif status >= 500:
            facts = self.exchange.ids.facts
            _log.warning("request_failed", model=self.route.model, status=status, error=str(error), **facts)
        if not self._request_id:  # otherwise the orchestrator records it
            self._record_refusal(error)
        if not self.exchange.is_lost:
            more = [CHALLENGE] if isinstance(error, AuthenticationError) else ()
            self._connection.start(_refuse(self.exchange, error, more))

    # Inside

    def _record_refusal(self, error: Exception) -> None:
        exchange, route = self.exchange, self.route
        arrival = Arrival("http", exchange.ids, exchange.arrived_ns, route.num_bytes, exchange.read_ns)
        self._inference.service.origins.record_refusal(arrival, error, lambda: route.model, self._tenant)

    def _decode(self, body: bytes) -> Sequence[Array]:
        """Returns the inputs, and keeps the request's other fields."""
        model, json_bytes = self._model, self.route.head.json_bytes
        templates = self._inference.templates
        if json_bytes:
            template = self._template = templates.find(model, body[:json_bytes], len(body))
            if template is not None:
                self._request = template.request
                return template.layout.arrays(body)
        memory = self._memory = self._inference.service.memory()
        request = self._request = decode_request(body, json_bytes, model, memory)
        if request.request_id:
            self.exchange.ids.name(request.request_id)
        if json_bytes:
            templates.add(model, body[:json_bytes], body, request)
        return request.arrays

    def _close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        if self._ticket is not None:
            self._ticket.release()
            self._ticket = None


async def _write(
    exchange: ServerExchange,
    head: RequestHead,
    parts: Sequence[bytes | memoryview],
    json_bytes: int | None,
    origin: Origin | None,
) -> None:
    await write_answer(exchange.send, head, parts, json_bytes)
    note_written(origin)


async def _refuse(exchange: ServerExchange, error: Exception, more: Sequence[tuple[bytes, bytes]]) -> None:
    await write_error(exchange.send, error, exchange.ids, more)
