"""The inference routes. They are plain ASGI functions: on this hot path, a framework would cost more than everything else."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import structlog
from starlette.types import Receive, Scope, Send

from dyorc.core.arrays import Array
from dyorc.errors import DyOrcError, RequestCancelledError
from dyorc.gateway.admission import Ticket
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.generate_json import decode_generate, encode_generate
from dyorc.gateway.codec.inference_json import decode_request
from dyorc.gateway.codec.json_outputs import AnswerForm, encode_response
from dyorc.gateway.codec.run_values import RunAnswer, RunBody, decode_run, encode_run, encode_run_json
from dyorc.gateway.http.disconnects import CancelledWithClient
from dyorc.gateway.http.heads import InferenceTarget, RequestHead, accepts, read_head
from dyorc.gateway.http.inference_answers import (
    Buffers,
    StreamWriter,
    Wrap,
    as_event,
    as_frame,
    only_part,
    write_answer,
    write_error,
)
from dyorc.gateway.http.middleware import EXCHANGE, arrival_of, ids_of, tenant_of
from dyorc.gateway.http.request_bodies import BodyReader
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.origins import NewSteps, note_written, steps_of
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.service import InferenceService
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import GENERATE, GENERATE_STREAM, INFER, INFER_STREAM, RUN
from dyorc.telemetry.record import Origin

_log = structlog.get_logger("dyorc.gateway")

T = TypeVar("T")


class AdmittedRequest(NamedTuple):
    """An admitted request, before its body."""

    model: Model
    head: RequestHead
    ticket: Ticket
    scope: Scope
    receive: Receive
    send: Send


class DecodedRequest(NamedTuple, Generic[T]):
    """A request whose body has been read, and how to answer it."""

    request: InferRequest
    memory: RequestMemory
    origin: Origin | None
    take: Callable[[list[Array]], T]


_Action: TypeAlias = Callable[[AdmittedRequest], Coroutine[Any, Any, None]]


class InferenceRoutes:
    """``POST /v2/models/{model}[/versions/{version}]/(infer|infer_stream|generate|generate_stream)``, ``POST /run/{model}``."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service
        self._bodies = BodyReader(service.config.max_request_bytes)
        self._actions: dict[str, _Action] = {
            INFER: self._infer,
            INFER_STREAM: self._infer_stream,
            GENERATE: self._generate,
            GENERATE_STREAM: self._generate_stream,
            RUN: self._run_values,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send, target: InferenceTarget) -> None:
        try:
            tenant = tenant_of(scope)
            model = self._service.model(tenant, target.model, target.version, scope["headers"])
            head = read_head(scope["headers"], is_old=scope["http_version"] == "1.0")
            with self._service.admission.admit(tenant, self._bodies.expected_bytes(head)) as ticket:
                ticket.arrived_ns, ticket.sender = scope.get("dyorc.arrived_ns"), scope[EXCHANGE]
                await self._actions[target.action](AdmittedRequest(model, head, ticket, scope, receive, send))
        except DyOrcError as error:
            ids = ids_of(scope)
            status = await write_error(send, error, ids)
            self._service.origins.record_refusal(arrival_of(scope), error, lambda: target.model, tenant_of(scope).name)
            if status >= 500:
                _log.warning("request_failed", model=target.model, status=status, error=str(error), **ids.facts)
        except Exception as error:
            ids = ids_of(scope)
            _log.exception("request_crashed", model=target.model, **ids.facts)
            self._service.origins.record_refusal(arrival_of(scope), error, lambda: target.model, tenant_of(scope).name)
            await write_error(send, error, ids)

    async def _infer(self, incoming: AdmittedRequest) -> None:
        model, head = incoming.model, incoming.head
        with self._service.memory() as memory:
            request, origin = await self._receive(
                incoming, memory, lambda body: decode_request(body, head.json_bytes, model, memory)
            )

            def take(arrays: list[Array]) -> tuple[Buffers, int | None]:
                return encode_response(model, request.request_id, request.outputs, arrays, steps_of(request, origin))

            parts, json_bytes = await self._run(incoming, DecodedRequest(request, memory, origin, take))
        await write_answer(incoming.send, head, parts, json_bytes)  # its bytes have been copied by now
        note_written(origin)

    async def _generate(self, incoming: AdmittedRequest) -> None:
        model = incoming.model
        with self._service.memory() as memory:
            request, origin = await self._receive(incoming, memory, lambda body: decode_generate(body, model, memory))

            def take(arrays: list[Array]) -> list[bytes]:
                return encode_generate(model, request, arrays, steps_of(request, origin))

            work = DecodedRequest(request, memory, origin, take)
            if model.is_streaming:
                with CancelledWithClient(incoming.scope, asyncio.current_task()):
                    parts = await only_part(self._stream(incoming, work), model)
            else:
                parts = await self._run(incoming, work)
        await write_answer(incoming.send, incoming.head, parts, None)
        note_written(origin)

    async def _infer_stream(self, incoming: AdmittedRequest) -> None:
        model, head = incoming.model, incoming.head
        form, wrap = (AnswerForm.BINARY, as_frame) if head.accepts_frames else (AnswerForm.JSON, as_event)
        with self._service.memory() as memory:
            request, origin = await self._receive(
                incoming, memory, lambda body: decode_request(body, head.json_bytes, model, memory, form)
            )
            news = NewSteps(request, origin)

            def take(arrays: list[Array]) -> Buffers:
                return wrap(*encode_response(model, request.request_id, request.outputs, arrays, news.steps()))

            await self._write_stream(incoming, DecodedRequest(request, memory, origin, take), wrap)

    async def _generate_stream(self, incoming: AdmittedRequest) -> None:
        model = incoming.model
        with self._service.memory() as memory:
            request, origin = await self._receive(incoming, memory, lambda body: decode_generate(body, model, memory))
            news = NewSteps(request, origin)

            def take(arrays: list[Array]) -> Buffers:
                return as_event(encode_generate(model, request, arrays, news.steps()))

            await self._write_stream(incoming, DecodedRequest(request, memory, origin, take), as_event)

    async def _run_values(self, incoming: AdmittedRequest) -> None:
        model, head = incoming.model, incoming.head
        headers = dict(incoming.scope["headers"])
        with self._service.memory() as memory:

            def decode(body: bytes | memoryview) -> InferRequest:
                content_type = headers.get(b"content-type", b"").decode("latin-1")
                sent = RunBody(body, content_type, incoming.scope["query_string"].decode("latin-1"))
                return decode_run(sent, model, memory, head.request_id)

            request, origin = await self._receive(incoming, memory, decode)
            if accepts(media_types.EVENTS.encode(), headers.get(b"accept", b"")):

                def event(arrays: list[Array]) -> Buffers:
                    return as_event([encode_run_json(model, arrays)])

                await self._write_stream(incoming, DecodedRequest(request, memory, origin, event), as_event, names_errors=True)
                return
            kind, body = await self._whole(incoming, request, memory, origin)
        await write_answer(incoming.send, head, [body], None, (b"content-type", kind.encode()))
        note_written(origin)

    async def _whole(
        self, incoming: AdmittedRequest, request: InferRequest, memory: RequestMemory, origin: Origin | None
    ) -> RunAnswer:
        """Runs a request on plain values to its end. The parts of a model that answers in parts come as a list."""
        model = incoming.model
        if not model.is_streaming:

            def take(arrays: list[Array]) -> RunAnswer:
                return encode_run(model, arrays)

            return await self._run(incoming, DecodedRequest(request, memory, origin, take))

        def take_part(arrays: list[Array]) -> bytes:
            return encode_run_json(model, arrays)

        work = DecodedRequest(request, memory, origin, take_part)
        with CancelledWithClient(incoming.scope, asyncio.current_task()):
            parts = [part async for ready in self._stream(incoming, work) for part in ready]
        return RunAnswer(media_types.JSON, b"[%b]" % b",".join(parts))

    async def _receive(
        self, incoming: AdmittedRequest, memory: RequestMemory, decode: Callable[[bytes | memoryview], InferRequest]
    ) -> tuple[InferRequest, Origin | None]:
        """Reads a request, and returns it with its origin, if it is recorded."""
        body = await self._bodies.read(incoming.head, incoming.receive, memory, incoming.ticket)
        origins = self._service.origins
        arrival = arrival_of(incoming.scope, num_bytes=len(body)).traced_as(origins.traced(incoming.head.caller))
        num_read = len(body) if incoming.head.json_bytes is None else 0  # raw tensors are only looked at
        request = await self._service.decoded(num_read, decode, body)
        return request, origins.of(request, arrival)

    async def _run(self, incoming: AdmittedRequest, work: DecodedRequest[T]) -> T:
        """Runs a request that has one answer, and cancels it if its client goes away."""
        with CancelledWithClient(incoming.scope) as wait:
            return await self._service.infer(
                incoming.ticket, incoming.model, work.request, work.memory,
                timeout_s=incoming.head.timeout_s, priority=incoming.head.priority, origin=work.origin,
                started=wait.attach, take=work.take,
            )  # fmt: skip

    def _stream(self, incoming: AdmittedRequest, work: DecodedRequest[T]) -> AsyncGenerator[list[T]]:
        return self._service.stream(
            incoming.ticket, incoming.model, work.request, work.memory,
            timeout_s=incoming.head.timeout_s, priority=incoming.head.priority, origin=work.origin, take=work.take,
        )  # fmt: skip

    async def _write_stream(
        self, incoming: AdmittedRequest, work: DecodedRequest[Buffers], wrap: Wrap, *, names_errors: bool = False
    ) -> None:
        ids = ids_of(incoming.scope)
        writer = StreamWriter(incoming.send, wrap, incoming.model.name, ids, names_errors=names_errors)
        try:
            with CancelledWithClient(incoming.scope, asyncio.current_task()):
                await writer.run(self._stream(incoming, work))
            note_written(work.origin)
        except RequestCancelledError:
            if not writer.is_started:  # otherwise no error can be written
                raise
