"""``/v1/responses``: its requests as requests for chat completions, and its answers.

Source: github.com/openai/openai-openapi: CreateResponse, Response, ResponseStreamEvent.
"""

from collections.abc import Sequence
from typing import Any, get_args
from uuid import uuid4

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from dyorc.gateway.http.openai.answer_forms import TextForm, WholeAnswer, usage_of
from dyorc.gateway.http.openai.answer_text import AnswerChoice
from dyorc.gateway.http.openai.openai_errors import OpenAiFault, text_of_error
from dyorc.gateway.http.openai.openai_requests import checked, read_fields
from dyorc.openai import ChatRequest, Role

_TEXTS = ("input_text", "output_text", "text")
_SAME = ("model", "stream", "temperature", "top_p", "user", "service_tier", "priority", "seed")


class ResponseRequest(BaseModel):
    """``POST /v1/responses``, as far as it is not a request for a chat, too."""

    model_config = ConfigDict(extra="allow")

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


def read_response(body: bytes | memoryview) -> tuple[ResponseRequest, ChatRequest]:
    """Returns a body as a request for a response, and as the request for a chat that it means.

    Raises:
        OpenAiFault: If it is malformed, or asks for what is not done here; names the field.
    """
    sent = checked(ResponseRequest, read_fields(body))
    return sent, checked(ChatRequest, _chat_fields(sent))


def _chat_fields(request: ResponseRequest) -> dict[str, Any]:
    """Returns the fields of the request for a chat completion that a request for a response means.

    Raises:
        OpenAiFault: If it refers to what this server does not keep or do, or is malformed.
    """
    more = request.model_extra or {}
    for name in ("previous_response_id", "conversation", "prompt"):
        if more.get(name) is not None:
            raise OpenAiFault(f"{name!r} is given, but no responses are kept here; send the whole conversation as 'input'", name)
    if more.get("background"):
        raise OpenAiFault("'background' is given, but responses run in the foreground here", "background")
    if isinstance(request.input, str):
        messages: list[dict[str, Any]] = [{"role": "user", "content": request.input}]
    else:
        messages = [_message(item, f"input.{at}") for at, item in enumerate(request.input)]
    if request.instructions:
        messages = [{"role": "system", "content": request.instructions}, *messages]
    fields = {name: more[name] for name in _SAME if more.get(name) is not None} | {"messages": messages}
    if request.max_output_tokens is not None:
        fields["max_completion_tokens"] = request.max_output_tokens
    if request.tools:
        fields["tools"] = [_tool(tool) for tool in request.tools]
    if request.tool_choice is not None:
        fields["tool_choice"] = request.tool_choice
    return fields


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") == "function" and "function" not in tool:
        return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
    return tool


def _message(item: dict[str, Any], place: str) -> dict[str, Any]:
    match item.get("type"):
        case "function_call":
            function = {"name": item.get("name", ""), "arguments": item.get("arguments", "")}
            call = {"id": item.get("call_id", ""), "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "function_call_output":
            output = _content(item.get("output", ""), f"{place}.output")
            return {"role": "tool", "tool_call_id": item.get("call_id", ""), "content": output}
        case "message" | None:
            return {"role": _role(item, place), "content": _content(item.get("content"), f"{place}.content")}
        case kind:
            expected = "message, function_call or function_call_output"
            raise OpenAiFault(f"'{place}.type' is {kind!r}, expected {expected}", f"{place}.type")


def _role(item: dict[str, Any], place: str) -> str:
    role, roles = item.get("role", "user"), get_args(Role)
    if role not in roles:
        raise OpenAiFault(f"'{place}.role' is {role!r}, expected one of {list(roles)}", f"{place}.role")
    if item.get("content") is None and role != "assistant":
        raise OpenAiFault(f"'{place}.content' is missing", f"{place}.content")
    return role


def _content(content: Any, place: str) -> Any:
    """Returns a text, or its parts as a chat has them."""
    if not isinstance(content, list):
        return content
    parts: list[dict[str, Any]] = []
    for at, part in enumerate(content):
        if not isinstance(part, dict):
            raise OpenAiFault(f"'{place}.{at}' is {type(part).__name__}, expected an object", f"{place}.{at}")
        parts.append({**part, "type": "text"} if part.get("type") in _TEXTS else part)
    return parts


class ResponseForm(TextForm):
    """``/v1/responses``. It has one choice."""

    prefix = "resp_"

    def __init__(self, model: str, request: ResponseRequest) -> None:
        super().__init__(model, includes_usage=True)
        self._message_id = f"msg_{uuid4().hex}"
        self._fields = request.model_dump()
        self._number = 0
        self._whole: WholeAnswer | None = None

    def _response(self, status: str, output: list[dict[str, Any]], usage: dict[str, Any] | None, why: str | None = None) -> Any:
        given = self._fields
        return {
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "model": self.model,
            "output": output, "usage": usage, "error": None,
            "incomplete_details": None if why is None else {"reason": why},
            "instructions": given.get("instructions"), "metadata": given.get("metadata") or {},
            "parallel_tool_calls": True, "temperature": given.get("temperature"), "top_p": given.get("top_p"),
            "tool_choice": given.get("tool_choice") or "auto", "tools": given.get("tools") or [],
            "max_output_tokens": given.get("max_output_tokens"),
        }  # fmt: skip

    def _message(self, text: str, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._text(text)]
        return {"id": self._message_id, "type": "message", "role": "assistant", "status": status, "content": content}

    @staticmethod
    def _text(text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def whole(self, choices: Sequence[WholeAnswer]) -> dict[str, Any]:
        (each,) = choices
        output = [self._message(each.text, "completed")] if each.content or not each.calls else []
        output += [
            {"type": "function_call", "id": f"fc_{uuid4().hex}", "call_id": call["id"], "status": "completed", **call["function"]}
            for call in each.calls
        ]
        counted = usage_of([each.choice])
        usage = {
            "input_tokens": counted["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": counted["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counted["total_tokens"],
        }
        is_cut = each.choice.finish_reason == "length"
        return self._response("incomplete" if is_cut else "completed", output, usage, "max_output_tokens" if is_cut else None)

    def fail(self, error: Exception) -> list[bytes]:
        output = [] if self._whole is None else [self._message(self._whole.text, "incomplete")]
        response = self._response("failed", output, None)
        response["error"] = {"code": "server_error", "message": text_of_error(error)}
        return [self._event("response.failed", response=response)]

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = msgspec.json.encode({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)

    def begin(self, num_choices: int) -> list[bytes]:
        response = self._response("in_progress", [], None)
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
            self._event("response.output_item.added", output_index=0, item=self._message("", "in_progress")),
            self._event(
                "response.content_part.added", item_id=self._message_id, output_index=0, content_index=0, part=self._text("")
            ),
        ]

    def delta(self, choice: AnswerChoice, fields: dict[str, Any]) -> list[bytes]:
        if self._whole is None:
            self._whole = WholeAnswer(choice)
        self._whole.add(fields)
        if "content" not in fields:
            return []
        place = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
        return [self._event("response.output_text.delta", **place, delta=fields["content"], logprobs=[])]

    def end(self, choices: Sequence[AnswerChoice]) -> list[bytes]:
        whole = self._whole or WholeAnswer(choices[0])
        place = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
        response = self.whole([whole])
        events = [
            self._event("response.output_text.done", **place, text=whole.text, logprobs=[]),
            self._event("response.content_part.done", **place, part=self._text(whole.text)),
            self._event("response.output_item.done", output_index=0, item=self._message(whole.text, "completed")),
        ]
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        if calls and not whole.content:
            response["output"] = [self._message("", "completed"), *calls]  # the message has been announced
        for at, item in enumerate(calls, start=1):
            announced = {**item, "arguments": "", "status": "in_progress"}
            events += [
                self._event("response.output_item.added", output_index=at, item=announced),
                self._event(
                    "response.function_call_arguments.delta", item_id=item["id"], output_index=at, delta=item["arguments"]
                ),
                self._event(
                    "response.function_call_arguments.done",
                    item_id=item["id"], output_index=at, name=item["name"], arguments=item["arguments"],
                ),
                self._event("response.output_item.done", output_index=at, item=item),
            ]  # fmt: skip
        kind = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
        return [*events, self._event(kind, response=response)]
