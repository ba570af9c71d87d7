"""Models that take part in OpenAI's API. Plain Python says what they answer (`reply_to`)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.openai import (
    ChatDelta,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RerankRequest,
    TokenEmbeddingRequest,
    TokenUsage,
)


def reply_to(request: ChatRequest) -> list[str]:
    """Returns the pieces of the answer: the words of the last message, reversed."""
    words = request.messages[-1].text.split()[::-1]
    return [f"{word} " for word in words[: request.limit]]


@dyorc.program(batched=False)
async def speak(request: ChatRequest) -> AsyncIterator[str]:
    if request.messages[-1].text == "fail":
        raise ValueError("it fails")
    for piece in reply_to(request):
        if piece == "break ":
            raise ValueError("it breaks")
        yield piece


@dyorc.workflow
async def talker(request: ChatRequest) -> AsyncIterator[str]:
    """Says the words of the last message backwards."""
    async for piece in speak(request):
        yield piece


@dyorc.program(batched=False)
async def speak_up_to(request: ChatRequest) -> AsyncIterator[str | ChatDelta]:
    for piece in reply_to(request):
        yield piece
    if request.limit is not None and request.limit < len(request.messages[-1].text.split()):
        yield ChatDelta(finish_reason="length")


@dyorc.workflow
async def limited(request: ChatRequest) -> AsyncIterator[str | ChatDelta]:
    """Says what `talker` says, and whether the limit cut it."""
    async for piece in speak_up_to(request):
        yield piece


@dyorc.program(batched=False)
def whole(request: ChatRequest) -> str:
    return "".join(reply_to(request))


@dyorc.workflow
async def silent(request: ChatRequest) -> str:
    return whole(request)


@dyorc.program(batched=False)
async def call_tools(request: ChatRequest) -> AsyncIterator[ChatDelta]:
    name = (request.tools or [{"function": {"name": "none"}}])[0]["function"]["name"]
    yield ChatDelta(reasoning_content="hm")
    yield ChatDelta(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}])
    for piece in ('{"city"', ': "Bern"}'):
        yield ChatDelta(tool_calls=[{"index": 0, "function": {"arguments": piece}}])
    yield ChatDelta(usage=TokenUsage(prompt_tokens=7, completion_tokens=5))


@dyorc.workflow
async def tooled(request: ChatRequest) -> AsyncIterator[ChatDelta]:
    async for delta in call_tools(request):
        yield delta


@dyorc.program(batched=False)
async def go_on(request: CompletionRequest) -> AsyncIterator[str]:
    for number in range(min(request.limit or 3, 100)):
        yield f"{request.prompt}{number}"


@dyorc.workflow
async def writer(request: CompletionRequest) -> AsyncIterator[str]:
    async for piece in go_on(request):
        yield piece


@dyorc.program(batched=False)
async def tick(request: ChatRequest) -> AsyncIterator[str]:
    while True:
        await asyncio.sleep(0.01)
        yield "tick "


@dyorc.workflow
async def endless(request: ChatRequest) -> AsyncIterator[str]:
    async for piece in tick(request):
        yield piece


def vector_of(text: str) -> list[float]:
    """Returns what `embed` makes of a text."""
    return [len(text) / 8, text.count("a") / 4, 0.5]


@dyorc.program(batched=False)
def embed_all(request: EmbeddingRequest) -> Float[np.ndarray, "n 3"]:
    return np.array([vector_of(each) for each in request.inputs], np.float32)


@dyorc.workflow
async def embedder(request: EmbeddingRequest) -> Float[np.ndarray, "n 3"]:
    return embed_all(request)


@dyorc.program(batched=False)
def embed_each(request: TokenEmbeddingRequest) -> list[list[float]]:
    return [vector_of(each if isinstance(each, str) else "a" * len(each)) for each in request.inputs]


@dyorc.workflow
async def token_embedder(request: TokenEmbeddingRequest) -> list[list[float]]:
    return embed_each(request)


class Infilling(CompletionRequest):
    """A request with the text that comes after."""

    suffix: str = ""


@dyorc.workflow
async def infiller(request: Infilling) -> str:
    return f"between {request.prompt} and {request.suffix}"


@dyorc.workflow
async def refuser(request: ChatRequest) -> AsyncIterator[str]:
    """Refuses every request, which is the client's fault, before its first part."""
    raise dyorc.InvalidInputError("it is refused")
    yield ""


@dyorc.program(batched=False)
def score(request: RerankRequest) -> list[float]:
    return [float(text.count(request.query)) for text in request.texts]


@dyorc.workflow
async def ranker(request: RerankRequest) -> list[float]:
    return score(request)


@dyorc.program(batched=False)
async def parse(request: ChatRequest) -> AsyncIterator[dict[str, Any]]:
    yield json.loads(request.messages[-1].text)


@dyorc.workflow
async def loose(request: ChatRequest) -> AsyncIterator[dict[str, Any]]:
    """Answers with the JSON of the last message, which may be no `ChatDelta`."""
    async for delta in parse(request):
        yield delta


ALL = [
    talker, limited, silent, tooled, loose, refuser, writer, infiller, endless, embedder, token_embedder, ranker,
]  # fmt: skip
