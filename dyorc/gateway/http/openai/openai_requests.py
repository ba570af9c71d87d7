"""Requests of OpenAI's API: read, checked against their types, and turned into each other."""

import re
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from dyorc.core.arrays import Array
from dyorc.core.nested_values import odd_numbers
from dyorc.gateway.codec.json_counts import count_values
from dyorc.gateway.http.openai.openai_errors import OpenAiFault
from dyorc.gateway.http.openai.openai_models import request_array
from dyorc.gateway.tenants import Tenant
from dyorc.openai import ChatRequest, CompletionRequest, Generation, RerankRequest, TokenEmbeddingRequest

OpenAiRequest: TypeAlias = Generation | TokenEmbeddingRequest | RerankRequest
"""What becomes the input of a workflow."""
Request = TypeVar("Request", bound=BaseModel)

_MAX_VALUES = 250_000
"""That many are read in a tenth of a second; 100 times as many, which fit into the largest body, hold up a server for ten."""
_MAY_BE_INFINITE = re.compile(rb"[0-9][eE]\+?[0-9]{3}|[0-9]{309}")
"""Finds all numbers that the parser makes infinite, although it is told to refuse infinity."""
_MAX_STOPS = 16
_MAX_SHOWN_CHARS = 100


def read_fields(body: bytes | memoryview) -> dict[str, Any]:
    """Returns the fields of a body, read by the parser that reads them again for the workflow, so both have the same limits.

    Raises:
        OpenAiFault: If it is not a JSON object, nested more than 200 levels deep, has too many values, or a number that is
            too large.
    """
    raw = bytes(body)
    if count_values(raw, _MAX_VALUES) > _MAX_VALUES:
        raise OpenAiFault(
            f"the request has more than {_MAX_VALUES} fields, texts, lists and objects, the most that are read here"
        )
    try:
        fields = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        text = str(error).replace("recursion limit exceeded", "it is nested more than 200 levels deep")
        raise OpenAiFault(f"the request's JSON is malformed: {text}") from None
    if not isinstance(fields, dict):
        raise OpenAiFault(f"the request's JSON is {type(fields).__name__}, expected an object")
    if _MAY_BE_INFINITE.search(raw) and any(odd_numbers(fields)):
        raise OpenAiFault("the request's JSON holds a number that is too large; workflows would get null for it")
    return fields  # pyright: ignore[reportUnknownVariableType]


def checked(kind: type[Request], fields: dict[str, Any]) -> Request:
    """Returns a request as its type. A field that is null counts as absent, which OpenAI's API says of most.

    Raises:
        OpenAiFault: If it does not fit; names the field.
    """
    nulls = [name for name, value in fields.items() if value is None and name in kind.model_fields]
    try:
        return kind.model_validate({name: fields[name] for name in fields.keys() - nulls} if nulls else fields)
    except ValidationError as error:
        param, text = problem_of(error)
        raise OpenAiFault(text, param) from None


def problem_of(error: ValidationError) -> tuple[str, str]:
    """Returns the field at fault, and what is wrong with it."""
    problem = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, problem["loc"]))
    return field, f"{field!r}: {problem['msg']}, got {repr(problem['input'])[:_MAX_SHOWN_CHARS]}"


def read_as(kind: type[Request], body: bytes | memoryview) -> Request:
    """Returns a body as a request; errors: see `read_fields` and `checked`."""
    return checked(kind, read_fields(body))


def check_extras(request: CompletionRequest, declared: Collection[str]) -> None:
    """Refuses what changes the text and only a workflow could do, unless its type declares the field.

    Raises:
        OpenAiFault: If there is such a field; names it.
    """
    extras = request.model_extra or {}
    best_of = extras.get("best_of")
    odd = {name: extras.get(name) for name in ("echo", "suffix")} | {"best_of": best_of if best_of != request.n else None}
    for name, value in odd.items():
        if value not in (None, False, "") and name not in declared:
            raise OpenAiFault(f"{name!r} is {value!r:.80}, which model {request.model!r} does not do", name)


def check_texts(request: TokenEmbeddingRequest) -> None:
    """Refuses tokens.

    Raises:
        OpenAiFault: If the inputs are none.
    """
    if not isinstance(request.inputs[0], str):
        raise OpenAiFault(f"'input' has tokens, and model {request.model!r} takes texts", "input")


def prompts_of(request: CompletionRequest) -> list[CompletionRequest]:
    """Returns a request for each prompt.

    Raises:
        OpenAiFault: If there is none.
    """
    prompt = request.prompt
    if not isinstance(prompt, list) or (prompt and isinstance(prompt[0], int)):
        return [request]
    if not prompt:
        raise OpenAiFault("'prompt' is an empty list", "prompt")
    return [request.model_copy(update={"prompt": each}) for each in prompt]


def check_choices(num_prompts: int, n: int, max_choices: int, tenant: Tenant) -> None:
    """Checks how many answers a request asks for.

    Raises:
        OpenAiFault: If there are more than `max_choices`, or than its key can ever have at once.
    """
    limit, reason = max_choices, "the setting GATEWAY__MAX_CHOICES"
    if tenant.most_at_once is not None and tenant.most_at_once < limit:
        limit, reason = tenant.most_at_once, "a limit of this key: each answer counts as a request"
    if num_prompts * n > limit:
        text = f"{num_prompts} prompts with 'n' {n} are {num_prompts * n} answers, expected at most {limit} ({reason})"
        raise OpenAiFault(text, "prompt" if num_prompts > 1 else "n")


def as_chat(request: Generation) -> ChatRequest:
    """Returns a request as one for a chat: a prompt becomes the user's message.

    Raises:
        OpenAiFault: If the prompt is a list of tokens.
    """
    if isinstance(request, ChatRequest):
        return request
    if not isinstance(request.prompt, str):
        raise OpenAiFault("'prompt' is a list of tokens, and the model takes texts", "prompt")
    fields = request.model_dump(exclude_unset=True, exclude={"prompt", "stream", "stream_options"})
    return checked(ChatRequest, fields | {"messages": [{"role": "user", "content": request.prompt}]})


def arrays_of(requests: Sequence[Generation], is_chat: bool) -> list[Array]:
    """Returns requests as inputs of a workflow, which is for a chat or not.

    Raises:
        OpenAiFault: If one is a list of tokens, for a chat.
    """
    return [request_array(as_chat(request) if is_chat else request) for request in requests]


def stops_of(request: Generation) -> list[str]:
    """Returns the texts that end an answer.

    Raises:
        OpenAiFault: If there are too many.
    """
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if len(stops) > _MAX_STOPS:
        raise OpenAiFault(f"'stop' has {len(stops)} texts, expected at most {_MAX_STOPS}", "stop")
    return [each for each in stops if each]


def priority_of_tier(request: OpenAiRequest) -> int:
    """Returns the priority that a request asks for: by its ``priority``, or else by its ``service_tier``; 0: none."""
    if request.priority is not None:
        return request.priority
    return 1 if isinstance(request, ChatRequest | CompletionRequest) and request.service_tier == "priority" else 0
