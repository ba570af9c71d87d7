"""Bodies of requests of OpenAI's API, and the arguments of tools of the Model Context Protocol."""

import json
from typing import Any

from mcp_types import JSONRPCRequest
from pydantic import BaseModel
from pydantic_core import ValidationError, from_json

from dyorc.errors import DyOrcError
from dyorc.gateway.codec.run_values import RunBody, decode_run
from dyorc.gateway.http.mcp_tools import encode_arguments
from dyorc.gateway.http.openai.openai_errors import OpenAiFault
from dyorc.gateway.http.openai.openai_requests import (
    arrays_of,
    check_choices,
    check_extras,
    check_texts,
    priority_of_tier,
    prompts_of,
    read_as,
    read_fields,
    stops_of,
)
from dyorc.gateway.tenants import ANONYMOUS
from dyorc.openai import ChatRequest, CompletionRequest, RerankRequest, TokenEmbeddingRequest
from dyorc.protocol import media_types
from tests.fuzz.contract import FuzzTarget, InputForm, check
from tests.fuzz.request_bodies import models, no_memory

_KINDS: dict[bytes, type[BaseModel]] = {
    b"chat": ChatRequest, b"completion": CompletionRequest, b"embedding": TokenEmbeddingRequest, b"rerank": RerankRequest,
}  # fmt: skip


def _read_openai(data: bytes) -> None:
    name, _, body = data.partition(b"\n")
    kind = _KINDS.get(name, ChatRequest)
    fields = read_fields(body)
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError):
        plain = None  # Python reads no numbers of thousands of digits
    check(plain is None or plain == fields, f"{fields!r:.200} was read, expected {plain!r:.200}")
    request = read_as(kind, body)
    if isinstance(request, ChatRequest | CompletionRequest | TokenEmbeddingRequest | RerankRequest):
        priority_of_tier(request)
    if isinstance(request, CompletionRequest):
        check_extras(request, ())
        prompts = prompts_of(request)
        check_choices(len(prompts), request.n or 1, 8, ANONYMOUS)
        arrays_of(prompts, is_chat=False)
        arrays_of(prompts, is_chat=True)
        stops_of(request)
    elif isinstance(request, ChatRequest):
        stops_of(request)
        again = read_as(ChatRequest, bytes(arrays_of([request], is_chat=True)[0][()]))
        check(again == request, f"{request!r:.200} came back as {again!r:.200}")
    elif isinstance(request, TokenEmbeddingRequest) and request.inputs:
        check_texts(request)


def build_openai() -> FuzzTarget:
    """Returns the target for requests of OpenAI's API."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": "data:"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f",
        "arguments": "{}"}}]},
    ]  # fmt: skip
    chat = {
        "model": "m", "messages": messages, "max_tokens": 5, "temperature": 0.5, "top_p": 1, "n": 1, "stop": ["a", "b"],
        "seed": 1,
        "stream": True, "stream_options": {"include_usage": True}, "tools": tools, "service_tier": "priority", "priority": 3,
        "user": "u",
    }  # fmt: skip
    bodies = {
        b"chat": chat,
        b"completion": {"model": "m", "prompt": ["a", "b"], "n": 2, "stop": "x", "echo": False, "best_of": 2, "suffix": ""},
        b"embedding": {"model": "m", "input": ["a", "b"], "dimensions": 3, "encoding_format": "base64"},
        b"rerank": {"model": "m", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1},
    }
    seeds = [name + b"\n" + json.dumps(body).encode() for name, body in bodies.items()]
    tokens = b'completion\n{"model": "m", "prompt": [1, 2]}', b'embedding\n{"model": "m", "input": [[1, 2], [3]]}'
    return FuzzTarget(
        name="openai_bodies",
        read=_read_openai,
        errors=(OpenAiFault,),
        seeds=(*seeds, *tokens),
        form=InputForm.JSON,
        words=(b"\\ud800", b"NaN", b"1e400", b"null", b'"role":', b"tool", b"developer", b"json_schema", b'{"type":"text"}'),
    )


def _read_mcp(data: bytes) -> None:
    name, _, body = data.partition(b"\n")
    model = models().get(name.decode("latin-1"))
    message = JSONRPCRequest.model_validate(from_json(body))
    arguments: Any = (message.params or {}).get("arguments") or {}
    if model is None or not isinstance(arguments, dict):
        return
    encoded = encode_arguments(arguments)
    with no_memory() as memory:
        decode_run(RunBody(encoded, media_types.JSON), model, memory)


def build_mcp() -> FuzzTarget:
    """Returns the target for calls of tools."""
    arguments = {
        b"repeat": {"x": [[1, 2]], "n": 3, "texts": ["a"], "scale": 0.5, "most": 2, "is_loud": True, "label": "l"},
        b"judge": {"text": "an invoice", "options": {"lower": False, "most": 3}},
        b"parcel": {"file": "YQ==", "factor": 1},
    }
    calls = [
        name
        + b"\n"
        + json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name.decode(), "arguments": fields}}
        ).encode()
        for name, fields in arguments.items()
    ]
    return FuzzTarget(
        name="mcp_calls",
        read=_read_mcp,
        errors=(DyOrcError, ValidationError, ValueError),
        seeds=tuple(calls),
        form=InputForm.JSON,
        words=(b"\\ud800", b"NaN", b"-Infinity", b"1e400", b"9" * 30),
    )
