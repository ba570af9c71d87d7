"""`dyorc.call` and `dyorc.stream`: what a handler of the user's own application asks of the models that are served beside it.

A call is a request like those of clients: of the tenant of the HTTP request that is being handled, with its id, deadline,
priority and trace, through the same admission. For the event loop's thread.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
from starlette.types import Scope

from dyorc.authoring.program import Program
from dyorc.authoring.signature import Signature
from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.authoring.values import ContentKind
from dyorc.authoring.workflow import Workflow, as_model
from dyorc.core.arrays import Array, element_of_bytes
from dyorc.core.request import RequestInfo, Terms
from dyorc.errors import AuthenticationError, DyOrcError, InvalidInputError, PayloadTooLargeError, UnsupportedError
from dyorc.gateway.admission import Ticket
from dyorc.gateway.catalog import Model
from dyorc.gateway.http.authentication import key_in
from dyorc.gateway.http.disconnects import CancelledWithClient
from dyorc.gateway.http.heads import sent_priority, sent_timeout_s
from dyorc.gateway.http.middleware import EXCHANGE
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.origins import Arrival
from dyorc.gateway.request_ids import Ids
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.request_senders import KnownSender, facts_of
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import ANONYMOUS, Tenant
from dyorc.telemetry.record import Origin
from dyorc.transport.outbox import num_bytes_of

current_handler: "ContextVar[HandlerRequest | None]" = ContextVar("dyorc_handler", default=None)
"""The HTTP request that the user's application handles, in its handler and in the tasks that this starts."""


async def call(model: Workflow | Program | str, /, *args: Any, **kwargs: Any) -> Any:
    """Runs a served model for the HTTP request that is being handled, and returns its answer.

    To be awaited in a handler of the application beside DyOrc's routes (``dyorc serve --app``, ``dyorc.asgi(app=...)``). The
    request's tenant, id, ``Request-Timeout``, ``X-Priority`` and trace apply. If its client goes away before it is
    answered, the call is cancelled. A handler that is no coroutine function runs on a thread: there,
    ``asyncio.run(dyorc.call(...))`` waits for it.

    Args:
        model: The workflow or program, or its name. By name, structured values come and go as texts and as what JSON has: lists,
            dicts, numbers.
        args: Its parameters, as for `dyorc.run`.

    Returns:
        NumPy, grouped as the workflow declares; see `dyorc.run`.

    Raises:
        RuntimeError: If no request is being handled.
        TypeError: If `model` is something else.
        UnsupportedError: If the model answers in parts.
        DyOrcError: See the tree in `dyorc.errors`. Uncaught, it becomes the answer, with its own status.
    """
    return await _current("call").run(model, args, kwargs)


async def stream(model: Workflow | Program | str, /, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
    """Runs a served model for the HTTP request that is being handled, and yields the parts of its answer as they come.

    The workflow waits while parts are not taken. A model that does not yield has one part. Close it if you stop early. Arguments
    and errors are those of `call`.
    """
    async for part in _current("stream").parts(model, args, kwargs):
        yield part


def _current(function: str) -> "HandlerRequest":
    handler = current_handler.get()
    if handler is None:
        raise RuntimeError(
            f"dyorc.{function} was called outside a request; it works in handlers of an application that is served by "
            f"`dyorc serve --app` or dyorc.asgi(..., app=...), and in tasks that they start"
        )
    return handler


class _HandlerCall(NamedTuple):
    """One call, admitted."""

    ticket: Ticket
    model: Model
    request: InferRequest
    memory: RequestMemory
    origin: Origin | None
    take: Callable[[list[Array]], Any]


class HandlerRequest:
    """An HTTP request that the user's application handles.

    Args:
        service: Runs its calls.
        scope: Its ASGI scope, with its exchange.
    """

    def __init__(self, service: InferenceService, scope: Scope) -> None:
        self._service = service
        self._scope = scope
        self._exchange = scope[EXCHANGE]
        self._loop = asyncio.get_running_loop()

    @property
    def ids(self) -> Ids:
        """The request's ids."""
        return self._exchange.ids

    async def run(self, target: Workflow | Program | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs a model that has one answer. Called on another event loop, as of a handler's thread, it runs on the server's."""
        if asyncio.get_running_loop() is not self._loop:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.run(target, args, kwargs), self._loop))
        with self._admitted(target, args, kwargs) as admitted, CancelledWithClient(self._client()) as wait:
            model = admitted.model
            if model.is_streaming:
                raise UnsupportedError(
                    f"model {model.name!r} answers in parts; read them by `async for part in dyorc.stream({model.name}, ...)`"
                )
            return await self._service.infer(
                admitted.ticket, model, admitted.request, admitted.memory,
                origin=admitted.origin, started=wait.attach, take=admitted.take,
            )  # fmt: skip

    async def parts(
        self, target: Workflow | Program | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> AsyncGenerator[Any]:
        """Yields the parts of a model's answer.

        Raises:
            RuntimeError: On another event loop.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("dyorc.stream was called on another event loop; it works in handlers that are coroutine functions")
        with self._admitted(target, args, kwargs) as admitted, CancelledWithClient(self._client()) as wait:
            parts = self._service.stream(
                admitted.ticket, admitted.model, admitted.request, admitted.memory,
                origin=admitted.origin, started=wait.attach, take=admitted.take,
            )  # fmt: skip
            async with contextlib.aclosing(parts):
                async for ready in parts:
                    for part in ready:
                        yield part

    def request_info(self) -> RequestInfo:
        """Returns what `dyorc.request` returns in the handler. Without a valid key, it has neither a tenant nor a priority.

        Raises:
            InvalidInputError: If a header with its terms is malformed.
            PermissionDeniedError: If the key may not ask for the request's priority.
        """
        service, headers = self._service, self._scope["headers"]
        priority = sent_priority(headers)
        try:
            tenant = self._tenant()
            tenant.check_priority(priority)
        except AuthenticationError:
            tenant, priority = ANONYMOUS, 0
        timeout_s = sent_timeout_s(headers)
        deadline_ns = None if timeout_s is None else self._exchange.arrived_ns + int(timeout_s * 1e9)
        terms = Terms(priority=priority, tenant=tenant.name)
        return RequestInfo.of(facts_of(self._exchange, service.shown_headers), terms, deadline_ns)

    # Inside

    @contextlib.contextmanager
    def _admitted(
        self, target: Workflow | Program | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Generator[_HandlerCall]:
        service, exchange = self._service, self._exchange
        if not isinstance(target, Workflow | Program | str):  # pyright: ignore[reportUnnecessaryIsInstance] -- a mistake that people make
            raise TypeError(
                f"dyorc.call or dyorc.stream got {target!r}, expected a workflow, a program or its name (the class of a program "
                f"is called first)"
            )
        name = target if isinstance(target, str) else target.name
        given = exchange.ids
        ids = Ids(given.request_id, given.trace_id, given.is_given, caller=given.caller)  # several calls have one id
        arrival, tenant_name = Arrival.read_now("http", ids, None, 0), ""
        try:
            tenant = self._tenant()
            tenant_name = tenant.name
            model = service.model(tenant, name, headers=self._scope["headers"])
            signature = model.signature if isinstance(target, str) else _signature_of(target)
            request = self._request(model, signature, args, kwargs)
            num_bytes = self._num_bytes(request.arrays)
            arrival = arrival._replace(num_bytes=num_bytes, traced=service.origins.traced(ids.caller))
            with service.admission.admit(tenant, num_bytes) as ticket, service.memory() as memory:
                ticket.arrived_ns, ticket.sender = exchange.arrived_ns, KnownSender(ids, self._scope["headers"])
                origin = service.origins.of(request, arrival, is_named=True)
                yield _HandlerCall(ticket, model, request, memory, origin, _taker(signature))
        except DyOrcError as error:
            service.origins.record_refusal(arrival, error, lambda: name, tenant_name)
            raise

    def _tenant(self) -> Tenant:
        """Looked up for each call: the application's own paths need no key, and its requests may have one of another kind."""
        return self._service.access.tenant_of(key_in(self._scope["headers"]))

    def _request(self, model: Model, signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> InferRequest:
        values, statics = signature.bind(args, kwargs)
        arrays = [
            _array_of(spec, value, f"{signature.owner}: {spec.name!r}")
            for spec, value in zip(signature.inputs, values, strict=True)
        ]
        model.check(arrays, statics)
        return InferRequest(
            request_id=self._exchange.ids.request_id,
            arrays=arrays,
            statics=statics,
            outputs=(),
            timeout_s=sent_timeout_s(self._scope["headers"]),
            priority=sent_priority(self._scope["headers"]),
            is_explained=False,
        )

    def _num_bytes(self, arrays: Sequence[Array]) -> int:
        num_bytes, limit = sum(map(num_bytes_of, arrays)), self._service.config.max_request_bytes
        if num_bytes > limit:
            raise PayloadTooLargeError(f"the call's inputs have {num_bytes} bytes, the limit is {limit}")
        return num_bytes

    def _client(self) -> Scope:
        """What is asked whether the client is gone; once it has its answer, it may go: background tasks run on."""
        return {} if self._exchange.is_answered else self._scope


@lru_cache(256)
def _signature_of(target: Workflow | Program) -> Signature:
    return as_model(target).signature


def _taker(signature: Signature) -> Callable[[list[Array]], Any]:
    outputs, owner = signature.outputs, signature.owner

    def take(arrays: list[Array]) -> Any:
        return outputs.build([_value_of(spec, array, owner) for spec, array in zip(outputs.tensors, arrays, strict=True)])

    return take


def _array_of(spec: TensorSpec, value: Any, label: str) -> Array:
    """Returns an argument as an array. Of a model that is named, only the kinds of structured values are known, no classes."""
    if isinstance(spec, ValueSpec) and spec.type is None and spec.kind is ContentKind.JSON:
        try:
            return element_of_bytes(msgspec.json.encode(value))
        except TypeError as error:
            raise InvalidInputError(f"{label}: {error}; pass what JSON has, or the workflow in place of its name") from None
    return spec.array_of(value, label)


def _value_of(spec: TensorSpec, array: Array, owner: str) -> Any:
    if isinstance(spec, ValueSpec) and spec.type is None and spec.is_plain:
        raw = bytes(array[()])
        return raw.decode() if spec.kind is ContentKind.TEXT else msgspec.json.decode(raw)
    return spec.value_of(np.array(array), owner)
