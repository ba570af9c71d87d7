# pyright: basic
# grpcio ships no types.
# pyright: basic, reportAttributeAccessIssue=false
# grpcio and generated messages have no types.
"""`ModelInfer` and `ModelStreamInfer`: the hot path. They read and write bytes; protobuf touches only what it must.

On a stream, each request is a task. Its answers carry its id and come when they are ready, before or after those of requests
sent earlier. Requests without an id cannot be told apart, so they are answered in order: each holds its first response back
until the requests before it have had their last.

A client that does not read its stream holds up its workflows: a task that waits for its turn to write asks for no further parts,
and when `_MAX_IN_FLIGHT` requests wait, nothing more is read, so that HTTP/2 holds up the client too.
"""

import asyncio
import contextlib
import time
from typing import Any

import grpc
import structlog

from dyorc.gateway.admission import Ticket
from dyorc.gateway.copies import join_buffers
from dyorc.gateway.grpc.call_context import CallSender, check_in_time, limit_s_of, tenant_of
from dyorc.gateway.grpc.decoding import decode_request, model_in, parse
from dyorc.gateway.grpc.encoding import encode_empty_final, encode_part, encode_response, encode_stream_error
from dyorc.gateway.grpc.grpc_errors import as_dyorc_error, refuse, text_of
from dyorc.gateway.grpc.message_templates import MessageTemplateCache
from dyorc.gateway.origins import Arrival, note_written, steps_of
from dyorc.gateway.request_ids import Ids, headers_in_metadata, ids_in_metadata
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.request_parameters import priority_in_headers
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant
from dyorc.protocol.header_names import REQUEST_ID
from dyorc.protocol.inference_pb2 import ModelInferRequest


class ModelInfer:
    """Answers `ModelInfer`. A client that cancels, goes away or runs out of time cancels the task of its call.

    Args:
        service: Runs requests.
        templates: Learns from the requests; None: nobody asks for what it learns.
    """

    def __init__(self, service: InferenceService, templates: MessageTemplateCache | None = None) -> None:
        self._service = service
        self._templates = templates

    async def answer(self, arrived_ns: int, message: bytes, context: Any) -> bytes:
        """Answers one request.

        Args:
            arrived_ns: When its call was accepted, before its message was read.
        """
        arrival = Arrival.read_now("grpc", ids_in_metadata(context), arrived_ns, len(message))
        service, owner = self._service, ""
        try:
            check_in_time(service.shedding, context, arrived_ns)
            tenant = tenant_of(service.access, context)
            owner = tenant.name
            with service.admission.admit(tenant, len(message)) as ticket:
                ticket.arrived_ns = arrived_ns
                ticket.sender = CallSender(arrival.ids, context)
                arrival = arrival.traced_as(service.origins.traced_by_metadata(context))
                limit_s = limit_s_of(context, arrived_ns)
                return await self._infer(message, tenant, ticket, arrival, limit_s, context)
        except Exception as error:
            service.origins.record_refusal(arrival, error, lambda: model_in(message), owner)
            await refuse(context, error, "ModelInfer", arrival.ids)

    async def _infer(
        self,
        message: bytes,
        tenant: Tenant,
        ticket: Ticket,
        arrival: Arrival,
        timeout_s: float | None,
        context: Any,
    ) -> bytes:
        parsed, raws = parse(message)
        arrival.ids.name(parsed.id)
        model = self._service.model(tenant, parsed.model_name, parsed.model_version or None, headers_in_metadata(context))
        with self._service.memory() as memory:
            request, _ = await decode_request(parsed, raws, model, memory, self._service.off_loop)
            if self._templates is not None:
                self._templates.add(model, parsed.model_version or None, message, request)
            origin = self._service.origins.of(request, arrival)
            answer = await self._service.infer(
                ticket,
                model,
                request,
                memory,
                timeout_s=timeout_s,
                priority=priority_in_headers(headers_in_metadata(context)),
                origin=origin,
                take=lambda arrays: join_buffers(encode_response(model, request, arrays, steps_of(request, origin))),
            )
        note_written(origin)
        if arrival.ids.is_given:
            context.set_trailing_metadata(((REQUEST_ID, arrival.ids.request_id),))
        return answer


_log = structlog.get_logger("dyorc.gateway")

_MAX_IN_FLIGHT = 256
"""Requests of one stream."""

_CALL = "ModelStreamInfer"
EOF: Any = grpc.aio.EOF
"""Returned by `read` after the last message."""


class OpenStreams:
    """Tasks that wait for clients, which may be silent for hours; stops waiting when the server stops."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[Any]] = set()
        self.is_stopping = False

    def stop(self) -> None:
        self.is_stopping = True
        for task in self._waiting:
            task.cancel()

    async def unless_stopped(self, waiting: Any) -> Any:
        """Returns the result of a coroutine that waits for a client; None if the server stops first."""
        task = asyncio.current_task()
        if task is None or self.is_stopping:
            waiting.close()
            return None
        self._waiting.add(task)
        try:
            return await waiting
        except asyncio.CancelledError:
            if not self.is_stopping or task.uncancel():  # another caller has cancelled it too
                raise
            return None
        finally:
            self._waiting.discard(task)


class ModelStreamInfer:
    """Answers `ModelStreamInfer`.

    Args:
        service: Runs requests.
        streams: Signals that the server stops: then nothing more is read, and what has been read is answered.
    """

    def __init__(self, service: InferenceService, streams: OpenStreams) -> None:
        self._service = service
        self._streams = streams

    async def __call__(self, messages: Any, context: Any) -> None:
        try:
            tenant = tenant_of(self._service.access, context)
        except Exception as error:
            await refuse(context, error, _CALL, ids_in_metadata(context))
        stream = _Stream(self._service, tenant, context)
        try:
            async with asyncio.TaskGroup() as requests:
                while True:
                    await stream.room.acquire()
                    message = await self._streams.unless_stopped(context.read())
                    if message is None or message is EOF:
                        break
                    requests.create_task(stream.answer(message, time.monotonic_ns()))
        except* _StreamLostError:
            _log.debug("stream_lost", tenant=tenant.name)


class _StreamLostError(Exception):
    """The client went away while an answer was being written. This may come before gRPC cancels the call."""


class _Stream:
    """One stream and the state that its requests share."""

    def __init__(self, service: InferenceService, tenant: Tenant, context: Any) -> None:
        self._service = service
        self._tenant = tenant
        self._context = context
        self._writing = asyncio.Lock()  # gRPC takes one message at a time
        self._last_turn: asyncio.Event | None = None
        self.room = asyncio.Semaphore(_MAX_IN_FLIGHT)

    async def answer(self, message: bytes, arrived_ns: int) -> None:
        """Answers one request. Never raises an error of that request.

        Args:
            arrived_ns: When it was read from the stream.

        Raises:
            _StreamLostError: If the client is gone.
        """
        turn = _NO_TURN
        parsed: Any = _NAMELESS
        ids = Ids.made_up()
        arrival = Arrival("grpc", ids, arrived_ns, len(message), arrived_ns)
        try:
            parsed, raws = parse(message)
            ids.name(parsed.id)
            turn = self._turn_of(parsed)
            check_in_time(self._service.shedding, self._context, arrived_ns)
            with self._service.admission.admit(self._tenant, len(message)) as ticket, self._service.memory() as memory:
                ticket.arrived_ns = arrived_ns
                ticket.sender = CallSender(arrival.ids, self._context)
                arrival = arrival.traced_as(self._service.origins.traced_by_metadata(self._context))
                await self._run(parsed, raws, memory, ticket, arrival, turn)
        except _StreamLostError:
            raise
        except Exception as error:
            turn = self._turn_of(parsed) if parsed is _NAMELESS else turn
            self._service.origins.record_refusal(arrival, error, lambda: parsed.model_name, self._tenant.name)
            text = text_of(as_dyorc_error(error, _CALL, ids))
            await self._write(encode_stream_error(text, parsed, ids), turn)
        finally:
            turn.is_over.set()
            self.room.release()

    def _turn_of(self, parsed: Any) -> "_Turn":
        if parsed.id:
            return _NO_TURN
        turn = _Turn(self._last_turn)
        self._last_turn = turn.is_over
        return turn

    async def _run(
        self, parsed: Any, raws: list[memoryview], memory: RequestMemory, ticket: Ticket, arrival: Arrival, turn: "_Turn"
    ) -> None:
        model = self._service.model(
            self._tenant, parsed.model_name, parsed.model_version or None, headers_in_metadata(self._context)
        )
        request, has_empty_final = await decode_request(parsed, raws, model, memory, self._service.off_loop)
        origin = self._service.origins.of(request, arrival)
        assert ticket.arrived_ns is not None
        timeout_s = limit_s_of(self._context, ticket.arrived_ns)
        priority = priority_in_headers(headers_in_metadata(self._context))
        if not model.is_streaming:
            part = await self._service.infer(
                ticket, model, request, memory, timeout_s=timeout_s, priority=priority, origin=origin,
                take=lambda arrays: encode_part(model, request, arrays, steps_of(request, origin), True),
            )  # fmt: skip
            await self._write(part, turn)
            note_written(origin)
            return
        all_parts = self._service.stream(
            ticket, model, request, memory, timeout_s=timeout_s, priority=priority, origin=origin,
            # Which part is last shows only when no more come; only then is there a trace.
            take=lambda arrays: encode_part(model, request, arrays, None, False),
        )  # fmt: skip
        async with contextlib.aclosing(all_parts):
            async for parts in all_parts:
                for part in parts:
                    await self._write(part, turn)
        if has_empty_final:
            await self._write(encode_empty_final(model, request.request_id, steps_of(request, origin)), turn)
        note_written(origin)

    async def _write(self, part: bytes, turn: "_Turn") -> None:
        if turn.before is not None:
            await turn.before.wait()
        async with self._writing:
            try:
                await self._context.write(part)
            except Exception as error:
                raise _StreamLostError from error


class _Turn:
    """When a request may be answered: once the request `before` it is done."""

    def __init__(self, before: asyncio.Event | None) -> None:
        self.before = before
        self.is_over = asyncio.Event()


_NO_TURN = _Turn(None)
"""For requests that need not wait, and for which no other waits."""

_NAMELESS = ModelInferRequest()
"""Takes the place of a request that cannot be read."""
