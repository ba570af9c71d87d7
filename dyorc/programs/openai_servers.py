"""A chat model of another server that speaks OpenAI's API: OpenAI, vLLM, or another DyOrc."""

import importlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import dyorc
from dyorc.errors import ExecutionError


def openai(
    base_url: str,
    model: str,
    *,
    name: str | None = None,
    api_key: str | None = None,
    api_key_variable: str = "OPENAI_API_KEY",
    is_streaming: bool = True,
    timeout_s: float = 60.0,
    max_attempts: int = 4,
    max_ongoing: int = 64,
    **options: Any,
) -> dyorc.Program:
    """Returns a program from ``messages`` to the text that the model answers, part by part.

    Its second parameter, ``sampling``, has further fields of the request: ``{"temperature": 0.2, "max_tokens": 100}``. Where
    nobody reads on, the request is cancelled. It counts as pure; a model that should not be asked on a guess is ``pure=False``.

    Args:
        base_url: Such as ``https://api.openai.com/v1``.
        model: The model's name there.
        name: By default ``openai``.
        api_key: The server's key. By default, the replica's environment variable `api_key_variable`, if it is set.
        is_streaming: Whether the text comes in parts; if not, it is returned whole.
        timeout_s: How long the program waits for a part, or for the whole text.
        max_attempts: How many times a request is sent to a server that has no room or cannot be reached.
        max_ongoing: How many requests it gets at once from a replica.
        options: Of `dyorc.program`.
    """

    class Remote:
        def __init__(self) -> None:
            key = api_key or os.environ.get(api_key_variable)
            self.service = importlib.import_module("dyorc.programs.remote_service").RemoteService(
                base_url,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout_s=timeout_s,
                max_attempts=max_attempts,
                max_connections=max_ongoing,
            )

    class Whole(Remote):
        async def __call__(self, messages: list[dict[str, Any]], sampling: dict[str, Any] | None = None) -> str:
            body = {**(sampling or {}), "model": model, "messages": messages}
            return _text_of(await self.service.post("/chat/completions", body), "message")

    class InParts(Remote):
        async def __call__(self, messages: list[dict[str, Any]], sampling: dict[str, Any] | None = None) -> AsyncIterator[str]:
            body = {**(sampling or {}), "model": model, "messages": messages, "stream": True}
            async with self.service.send("/chat/completions", body) as answer:
                async for line in answer.aiter_lines():
                    kind, _, data = line.partition(":")
                    if kind != "data":
                        continue
                    if data.strip() == "[DONE]":
                        return
                    if text := _text_of(_read_event(data, f"{base_url}: an event of {model!r}"), "delta"):
                        yield text
            raise ExecutionError(f"{base_url}: the stream of {model!r} ended before its end, [DONE]")

    cls = InParts if is_streaming else Whole
    return dyorc.program(name=name or "openai", batched=False, max_ongoing=max_ongoing, **options)(cls)()


def _read_event(data: str, label: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ExecutionError(f"{label} is {data.strip()[:80]!r}, which is no JSON: {error}") from error


def _text_of(answer: Any, field: str) -> str:
    if isinstance(answer, dict) and "error" in answer:
        raise ExecutionError(f"the remote model failed: {json.dumps(answer['error'])[:500]}")
    try:
        return next((choice[field].get("content") or "" for choice in answer["choices"]), "")
    except (KeyError, TypeError, AttributeError) as error:
        raise ExecutionError(f"the remote model answered {json.dumps(answer)[:200]}, without choices of a {field}") from error
