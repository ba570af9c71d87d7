"""How an answer is written for each of OpenAI's routes that answer with a text: whole, and as server-sent events.

Source: github.com/openai/openai-openapi: CreateChatCompletionResponse, CreateChatCompletionStreamResponse,
CreateCompletionResponse.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar
from uuid import uuid4

import msgspec

from dyorc.gateway.http.openai.answer_text import AnswerChoice
from dyorc.gateway.http.openai.openai_errors import openai_error
from dyorc.openai import TokenUsage

DONE = b"data: [DONE]\n\n"


def event(value: dict[str, Any]) -> bytes:
    """Returns a server-sent event."""
    return b"data: %b\n\n" % msgspec.json.encode(value)


def around_choice(value: dict[str, Any]) -> tuple[bytes, bytes]:
    """Returns what stands before and after the only choice in an event, which is that of a value without choices."""
    before, between, after = event(value).partition(b'"choices":[')
    return before + between, after


@dataclass
class WholeAnswer:
    """One answer, all of it."""

    choice: AnswerChoice
    content: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    tool_calls: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])

    def add(self, fields: dict[str, Any]) -> None:
        """Adds the fields of a delta."""
        self.content += [fields["content"]] if "content" in fields else []
        self.reasoning += [fields["reasoning_content"]] if "reasoning_content" in fields else []
        for call in fields.get("tool_calls", ()):
            _add_call(self.tool_calls, call["index"], call)

    @property
    def text(self) -> str:
        return "".join(self.content)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Its calls of tools, in order."""
        return [self.tool_calls[index] for index in sorted(self.tool_calls)]


def _add_call(calls: dict[int, dict[str, Any]], index: int, delta: dict[str, Any]) -> None:
    """Adds a part of a call of a tool: its id and name come first, its arguments in pieces."""
    call = calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] = delta.get("id") or call["id"] or f"call_{uuid4().hex}"
    function = delta.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def usage_of(choices: Sequence[AnswerChoice]) -> dict[str, int]:
    """Returns the usage of a request: the prompt counts once, its answers together."""
    counted = [choice.counted for choice in choices] or [TokenUsage()]
    prompt, completion = max(each.prompt_tokens for each in counted), sum(each.completion_tokens for each in counted)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class TextForm(ABC):
    """How the answer to one request is written.

    Args:
        model: The name that the client used.
        includes_usage: Whether a stream ends with the usage.

    Attributes:
        id: Of the answer.
    """

    prefix: ClassVar[str]
    """Of ids."""

    def __init__(self, model: str, includes_usage: bool) -> None:
        self.id = f"{self.prefix}{uuid4().hex}"
        self.model = model
        self.includes_usage = includes_usage
        self.created = int(time.time())

    @abstractmethod
    def whole(self, choices: Sequence[WholeAnswer]) -> dict[str, Any]:
        """Returns the whole answer."""

    @abstractmethod
    def begin(self, num_choices: int) -> list[bytes]:
        """Returns the first events of a stream."""

    @abstractmethod
    def delta(self, choice: AnswerChoice, fields: dict[str, Any]) -> list[bytes]:
        """Returns the events of a part."""

    @abstractmethod
    def end(self, choices: Sequence[AnswerChoice]) -> list[bytes]:
        """Returns the last events of a stream, once all of its choices have finished."""

    def finish(self, choice: AnswerChoice) -> list[bytes]:
        """Returns the events that say why a choice has ended."""
        return []

    def fail(self, error: Exception) -> list[bytes]:
        """Returns the last events of a stream that has failed."""
        return [b"data: %b\n\n" % openai_error(error)]


class ChatForm(TextForm):
    """``/v1/chat/completions``."""

    prefix = "chatcmpl-"

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}

    @cached_property
    def _around(self) -> tuple[bytes, bytes]:
        """What stands before and after the choice in every event: all that differs is encoded anew."""
        usage = {"usage": None} if self.includes_usage else {}
        return around_choice(self._object("chat.completion.chunk", []) | usage)

    def _chunk(self, index: int, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        before, after = self._around
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return b"%b%b%b" % (before, msgspec.json.encode(choice), after)

    def whole(self, choices: Sequence[WholeAnswer]) -> dict[str, Any]:
        written = [
            {
                "index": each.choice.index,
                "message": {
                    "role": "assistant",
                    "content": each.text if each.content or not each.calls else None,
                    "refusal": None,
                }
                | ({"reasoning_content": "".join(each.reasoning)} if each.reasoning else {})
                | ({"tool_calls": each.calls} if each.calls else {}),
                "logprobs": None,
                "finish_reason": each.choice.finish_reason,
            }
            for each in choices
        ]
        return self._object("chat.completion", written) | {"usage": usage_of([each.choice for each in choices])}

    def begin(self, num_choices: int) -> list[bytes]:
        return [self._chunk(index, {"role": "assistant", "content": ""}) for index in range(num_choices)]

    def delta(self, choice: AnswerChoice, fields: dict[str, Any]) -> list[bytes]:
        return [self._chunk(choice.index, fields)]

    def finish(self, choice: AnswerChoice) -> list[bytes]:
        return [self._chunk(choice.index, {}, choice.finish_reason)]

    def end(self, choices: Sequence[AnswerChoice]) -> list[bytes]:
        usage = [event(self._object("chat.completion.chunk", []) | {"usage": usage_of(choices)})] if self.includes_usage else []
        return [*usage, DONE]


class CompletionForm(TextForm):
    """``/v1/completions``."""

    prefix = "cmpl-"

    def _object(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model, "choices": choices}

    @staticmethod
    def _choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}

    def whole(self, choices: Sequence[WholeAnswer]) -> dict[str, Any]:
        written = [self._choice(each.choice.index, each.text, each.choice.finish_reason) for each in choices]
        return self._object(written) | {"usage": usage_of([each.choice for each in choices])}

    def begin(self, num_choices: int) -> list[bytes]:
        return []

    @cached_property
    def _around(self) -> tuple[bytes, bytes]:
        return around_choice(self._object([]))

    def _chunk(self, index: int, text: str, finish_reason: str | None) -> bytes:
        before, after = self._around
        return b"%b%b%b" % (before, msgspec.json.encode(self._choice(index, text, finish_reason)), after)

    def delta(self, choice: AnswerChoice, fields: dict[str, Any]) -> list[bytes]:
        return [self._chunk(choice.index, fields["content"], None)] if "content" in fields else []

    def finish(self, choice: AnswerChoice) -> list[bytes]:
        return [self._chunk(choice.index, "", choice.finish_reason)]

    def end(self, choices: Sequence[AnswerChoice]) -> list[bytes]:
        usage = [event(self._object([]) | {"usage": usage_of(choices)})] if self.includes_usage else []
        return [*usage, DONE]
