"""Models that take part in OpenAI's API. Plain Python says what they answer (`reply_to`)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.openai import ChatDelta, ChatRequest, CompletionRequest, EmbeddingRequest, RerankRequest, TokenUsage


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
    return np.array([vector_of(str(each)) for each in request.inputs], np.float32)


@dyorc.workflow
async def embedder(request: EmbeddingRequest) -> Float[np.ndarray, "n 3"]:
    return embed_all(request)


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


ALL = [talker, silent, tooled, loose, writer, endless, embedder, ranker]
