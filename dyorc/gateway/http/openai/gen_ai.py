"""What the span of a request says by OpenTelemetry's conventions for generative models, so that their tools show it.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from dyorc.gateway.http.openai.answer_forms import TextForm, usage_of
from dyorc.gateway.http.openai.answer_text import AnswerChoice
from dyorc.gateway.http.openai.openai_requests import OpenAiRequest
from dyorc.openai import ChatRequest, CompletionRequest, TokenEmbeddingRequest
from dyorc.telemetry.record import Origin

_OPERATIONS: dict[type[BaseModel], str] = {
    ChatRequest: "chat",
    CompletionRequest: "text_completion",
    TokenEmbeddingRequest: "embeddings",
}


def note_request(origin: Origin | None, request: OpenAiRequest) -> None:
    """Notes what a request asks for, if it is recorded."""
    if origin is None:
        return
    origin.attributes |= {
        "gen_ai.operation.name": _OPERATIONS.get(type(request), "rerank"),
        "gen_ai.provider.name": "dyorc",
        "gen_ai.request.model": request.model,
    }
    asked: dict[str, Any] = {"user.id": getattr(request, "user", None)}
    match request:
        case ChatRequest() | CompletionRequest():
            asked |= {
                "gen_ai.request.max_tokens": request.limit,
                "gen_ai.request.temperature": request.temperature,
                "gen_ai.request.top_p": request.top_p,
                "gen_ai.request.seed": request.seed,
                "gen_ai.request.stop_sequences": [request.stop] if isinstance(request.stop, str) else request.stop,
                "gen_ai.request.choice.count": request.n if request.n > 1 else None,
            }
        case TokenEmbeddingRequest():
            asked |= {
                "gen_ai.request.encoding_formats": [request.encoding_format],
                "gen_ai.embeddings.dimension.count": request.dimensions,
            }
        case _:
            pass
    origin.attributes |= {name: value for name, value in asked.items() if value is not None}


def note_answer(origin: Origin | None, form: TextForm, choices: Sequence[AnswerChoice]) -> None:
    """Notes what was answered with a text. The span is made a moment after the request has ended."""
    if origin is None:
        return
    usage = usage_of(choices)
    origin.attributes |= {
        "gen_ai.response.id": form.id,
        "gen_ai.response.model": form.model,
        "gen_ai.response.finish_reasons": [choice.finish_reason for choice in choices if choice.finish_reason is not None],
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
    }
