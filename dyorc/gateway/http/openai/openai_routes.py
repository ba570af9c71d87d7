"""OpenAI's API: ``/v1/models``, and below ``/v1``: chat/completions, completions, responses, embeddings and rerank.

Plain ASGI, like the inference routes. A model takes part by the type of its parameter (`openai_models`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import ExitStack, aclosing
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from dyorc.authoring.spec import TensorSpec
from dyorc.core.arrays import Array
from dyorc.errors import DyOrcError, UnknownModelError
from dyorc.gateway.admission import Ticket
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.http_errors import retry_headers
from dyorc.gateway.http.disconnects import CancelledWithClient
from dyorc.gateway.http.heads import RequestHead, read_head
from dyorc.gateway.http.inference_answers import EVENTS, JSON, UNBUFFERED, write, write_parts
from dyorc.gateway.http.middleware import EXCHANGE, arrival_of, ids_of, tenant_of
from dyorc.gateway.http.openai.answer_forms import ChatForm, CompletionForm, TextForm, WholeAnswer
from dyorc.gateway.http.openai.answer_text import AnswerChoice, TextPart, answer_part
from dyorc.gateway.http.openai.gen_ai import note_answer, note_request
from dyorc.gateway.http.openai.generation import ChoiceStep, RunParts, side_by_side
from dyorc.gateway.http.openai.openai_errors import OpenAiFault, openai_error, openai_status
from dyorc.gateway.http.openai.openai_models import (
    CHAT,
    COMPLETION,
    EMBEDDING,
    RERANK,
    TOKEN_EMBEDDING,
    Part,
    output_of,
    part_of,
    request_array,
)
from dyorc.gateway.http.openai.openai_requests import (
    OpenAiRequest,
    arrays_of,
    check_choices,
    check_extras,
    check_texts,
    priority_of_tier,
    prompts_of,
    read_as,
    stops_of,
)
from dyorc.gateway.http.openai.responses import ResponseForm, ResponseRequest, read_response
from dyorc.gateway.http.openai.vectors import copy_of, embeddings, ranking
from dyorc.gateway.http.request_bodies import BodyReader
from dyorc.gateway.infer_request import InferRequest, make_request
from dyorc.gateway.origins import Arrival, note_written
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant
from dyorc.openai import ChatRequest, CompletionRequest, EmbeddingRequest, Generation, RerankRequest, TokenEmbeddingRequest
from dyorc.protocol.api_paths import CHAT_COMPLETIONS, COMPLETIONS, EMBEDDINGS, OPENAI_MODELS, RERANKINGS, RESPONSES, is_openai
from dyorc.protocol.parameter_names import PRIORITY
from dyorc.telemetry.record import Origin
from dyorc.transport.outbox import num_bytes_of

_log = structlog.get_logger("dyorc.gateway")


_TYPES = {
    CHAT: ChatRequest,
    COMPLETION: CompletionRequest,
    EMBEDDING: EmbeddingRequest,
    TOKEN_EMBEDDING: TokenEmbeddingRequest,
    RERANK: RerankRequest,
}


class _Call(NamedTuple):
    """A request that has been admitted and read."""

    num_bytes: int
    head: RequestHead
    ticket: Ticket
    arrival: Arrival
    scope: Scope
    send: Send


_Reader: TypeAlias = Callable[[bytes | memoryview], Any]
_Action: TypeAlias = Callable[[_Call, Any], Coroutine[Any, Any, None]]


class OpenAiRoutes:
    """OpenAI's API."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service
        self._bodies = BodyReader(service.config.max_request_bytes)
        self._actions: dict[str, tuple[_Reader, _Action]] = {
            CHAT_COMPLETIONS: (partial(read_as, ChatRequest), self._chat),
            COMPLETIONS: (partial(read_as, CompletionRequest), self._complete),
            RESPONSES: (read_response, self._respond),
            EMBEDDINGS: (partial(read_as, TokenEmbeddingRequest), self._embed),
            RERANKINGS: (partial(read_as, RerankRequest), self._rerank),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_openai(scope["path"]):
            await write_openai_error(send, OpenAiFault(f"unknown URL {scope['path']!r:.200}", status=404))
            return
        try:
            if (reader_and_action := self._actions.get(scope["path"])) is None:
                await self._models(scope, send)
            elif scope["method"] != "POST":
                await write_openai_error(send, OpenAiFault("expected POST", status=405), [(b"allow", b"POST")])
            else:
                tenant = tenant_of(scope)
                head = read_head(scope["headers"], is_old=scope["http_version"] == "1.0")
                with self._service.admission.admit(tenant, self._bodies.expected_bytes(head)) as ticket:
                    ticket.arrived_ns, ticket.sender = scope.get("dyorc.arrived_ns"), scope[EXCHANGE]
                    read, act = reader_and_action
                    await act(*await self._read(read, head, ticket, scope, receive, send))
        except Exception as error:
            await write_openai_error(send, error)
            self._service.origins.record_refusal(arrival_of(scope), error, lambda: scope["path"], tenant_of(scope).name)
            if not isinstance(error, DyOrcError | OpenAiFault):
                _log.exception("request_crashed", path=scope["path"], **ids_of(scope).facts)
            elif openai_status(error) >= 500:
                _log.warning("request_failed", path=scope["path"], error=str(error), **ids_of(scope).facts)

    async def _read(
        self, read: _Reader, head: RequestHead, ticket: Ticket, scope: Scope, receive: Receive, send: Send
    ) -> tuple[_Call, Any]:
        """Returns a call, with what `read` makes of its body."""
        with self._service.memory() as memory:
            body = await self._bodies.read(head, receive, memory, ticket)
            request = await self._service.decoded(len(body), read, body)
        arrival = arrival_of(scope, num_bytes=len(body)).traced_as(self._service.origins.traced(head.caller))
        return _Call(len(body), head, ticket, arrival, scope, send), request

    # Models

    def _names(self, tenant: Tenant, roles: Sequence[str] = tuple(_TYPES)) -> list[str]:
        """Returns the names of the models that a tenant may use, and that take requests of some kinds."""
        parts = [(model, part_of(model)) for name, model in self._service.catalog.models.items() if tenant.may_use(name)]
        able = [model for model, part in parts if part is not None and part.role in roles]
        inner = {program.name for model in able if not model.is_program for program in model.programs}
        return sorted({model.name for model in able} - inner)

    async def _models(self, scope: Scope, send: Send) -> None:
        names = self._names(tenant_of(scope))
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "dyorc"} for name in names]
        if scope["path"] == OPENAI_MODELS:
            answer: Any = {"object": "list", "data": models}
        else:
            name = scope["path"][len(OPENAI_MODELS) + 1 :]
            answer = next((model for model in models if model["id"] == name), None)
            if answer is None:
                raise UnknownModelError(f"unknown model {name!r}; served are {names}")
        await write(send, 200, [JSON], [msgspec.json.encode(answer)])

    def _model(self, call: _Call, name: str, roles: Sequence[str]) -> tuple[Model, Part]:
        """Returns a model, and how it takes part.

        Raises:
            UnknownModelError: If there is none that takes such requests.
            PermissionDeniedError: If the tenant may not use it.
        """
        tenant = tenant_of(call.scope)
        try:
            model = self._service.model(tenant, name, None, call.scope["headers"])
        except UnknownModelError:
            raise UnknownModelError(f"unknown model {name!r}; served are {self._names(tenant, roles)}") from None
        part = part_of(model)
        if part is None or part.role not in roles:
            expected = " or ".join(_TYPES[role].__name__ for role in roles)
            served = self._names(tenant, roles)
            raise UnknownModelError(f"model {name!r} takes no {expected}; these do: {served}")
        return model, part

    # Texts

    async def _chat(self, call: _Call, request: ChatRequest) -> None:
        options = request.stream_options
        form = ChatForm(request.model, options is not None and options.include_usage)
        await self._generate(call, request, [request], form)

    async def _respond(self, call: _Call, both: tuple[ResponseRequest, ChatRequest]) -> None:
        sent, request = both
        await self._generate(call, request, [request], ResponseForm(request.model, sent))

    async def _complete(self, call: _Call, request: CompletionRequest) -> None:
        options = request.stream_options
        form = CompletionForm(request.model, options is not None and options.include_usage)
        await self._generate(call, request, prompts_of(request), form)

    async def _generate(self, call: _Call, request: Generation, each: Sequence[Generation], form: TextForm) -> None:
        """Runs a request for a text. `each` has one for each prompt; there are `n` choices for each of these."""
        roles = (CHAT,) if isinstance(request, ChatRequest) else (COMPLETION, CHAT)
        model, part = self._model(call, request.model, roles)
        if isinstance(request, CompletionRequest):
            check_extras(request, part.fields)
        stops = stops_of(request)
        check_choices(len(each), request.n, self._service.config.max_choices, tenant_of(call.scope))
        inputs = await self._service.decoded(call.num_bytes, arrays_of, each, part.role == CHAT)
        given = [array for array in inputs for _ in range(request.n)]
        choices = [AnswerChoice(index, stops) for index in range(len(given))]
        with ExitStack() as room, self._service.memory() as memory, CancelledWithClient(call.scope, asyncio.current_task()):
            for _ in choices[1:]:  # each is a request to the engine, so each needs a place
                room.enter_context(self._service.admission.admit(tenant_of(call.scope)))
            inferences = [self._inference(call, model, part, array, request) for array in given]
            origin = self._service.origins.of(inferences[0], call.arrival)
            note_request(origin, request)
            runs = [
                self._run(call, model, inference, memory, origin if at == 0 else None) for at, inference in enumerate(inferences)
            ]
            async with aclosing(side_by_side(choices, runs)) as together:
                if request.stream:
                    await self._write_stream(call, form, choices, together)
                else:
                    wholes = [WholeAnswer(choice) for choice in choices]
                    async for steps in together:
                        for step in steps:
                            wholes[step.choice.index].add(step.fields)
                    await write(call.send, 200, [JSON], [msgspec.json.encode(form.whole(wholes))])
        note_written(origin)
        note_answer(origin, form, choices)

    def _inference(self, call: _Call, model: Model, part: Part, array: Array, request: OpenAiRequest) -> InferRequest:
        return make_request(model, call.head.request_id, {part.parameter: array}, {PRIORITY: priority_of_tier(request)}, ())

    def _run(self, call: _Call, model: Model, inference: InferRequest, memory: RequestMemory, origin: Origin | None) -> RunParts:
        spec = output_of(model)

        def take(arrays: list[Array]) -> TextPart:
            return answer_part(spec, arrays[0])

        def run() -> AsyncGenerator[list[TextPart]]:
            return self._service.stream(
                call.ticket,
                model,
                inference,
                memory,
                timeout_s=call.head.timeout_s,
                priority=call.head.priority,
                origin=origin,
                take=take,
            )

        return run

    async def _write_stream(
        self, call: _Call, form: TextForm, choices: Sequence[AnswerChoice], together: AsyncGenerator[list[ChoiceStep]]
    ) -> None:
        steps = await anext(together)  # an error before it is answered with its status
        await call.send({"type": "http.response.start", "status": 200, "headers": [EVENTS, UNBUFFERED]})
        events = form.begin(len(choices))
        try:
            while steps is not None:
                for step in steps:
                    events += form.delta(step.choice, step.fields) if step.fields else []
                    events += form.finish(step.choice) if step.is_end else []
                if events:
                    await write_parts(call.send, events, more_body=True)
                events, steps = [], await anext(together, None)
            await write_parts(call.send, form.end(choices), more_body=False)
        except Exception as error:
            _log.warning("stream_failed", model=form.model, error=str(error), **ids_of(call.scope).facts)
            await write_parts(call.send, form.fail(error), more_body=False)

    # Vectors

    async def _embed(self, call: _Call, request: TokenEmbeddingRequest) -> None:
        if not request.inputs:
            raise OpenAiFault("'input' is an empty list", "input")
        model, part = self._model(call, request.model, (EMBEDDING, TOKEN_EMBEDDING))
        if part.role == EMBEDDING:
            check_texts(request)
        await self._answer(call, request, model, part, partial(embeddings, request))

    async def _rerank(self, call: _Call, request: RerankRequest) -> None:
        model, part = self._model(call, request.model, (RERANK,))
        await self._answer(call, request, model, part, partial(ranking, request))

    async def _answer(
        self,
        call: _Call,
        request: TokenEmbeddingRequest | RerankRequest,
        model: Model,
        part: Part,
        encode: Callable[[TensorSpec, Array], bytes],
    ) -> None:
        """Runs a request that has one answer of numbers."""
        array = await self._service.decoded(call.num_bytes, request_array, request)
        inference = self._inference(call, model, part, array, request)
        origin = self._service.origins.of(inference, call.arrival)
        note_request(origin, request)

        spec = output_of(model)

        def take(arrays: list[Array]) -> Array:
            return copy_of(spec, arrays[0])

        with self._service.memory() as memory, CancelledWithClient(call.scope) as wait:
            answer = await self._service.infer(
                call.ticket, model, inference, memory,
                timeout_s=call.head.timeout_s, priority=call.head.priority, origin=origin, started=wait.attach, take=take,
            )  # fmt: skip
        body = await self._service.decoded(num_bytes_of(answer), encode, spec, answer)
        await write(call.send, 200, [JSON], [body])
        note_written(origin)


async def write_openai_error(send: Send, error: Exception, more_headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Writes an error in the form of this API."""
    headers = [JSON, *more_headers, *retry_headers(error)]
    await write(send, openai_status(error), headers, [openai_error(error)])
