"""``/v1/responses``: its requests as requests for chat completions, and its answers.

Source: github.com/openai/openai-openapi: CreateResponse, Response, ResponseStreamEvent.
"""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec

from dyorc.gateway.http.openai.answer_forms import TextForm, WholeAnswer, usage_of
from dyorc.gateway.http.openai.answer_text import AnswerChoice
from dyorc.gateway.http.openai.openai_errors import OpenAiFault

_TEXTS = ("input_text", "output_text", "text")
_SAME = ("model", "stream", "temperature", "top_p", "user", "service_tier", "seed")


def chat_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of the request for a chat completion that a request for a response means.

    Raises:
        OpenAiFault: If it refers to what this server does not keep, or is malformed.
    """
    for name in ("previous_response_id", "conversation", "prompt"):
        if fields.get(name) is not None:
            raise OpenAiFault(f"{name!r} is given, but no responses are kept here; send the whole conversation as 'input'", name)
    given = fields.get("input")
    if isinstance(given, str):
        messages = [{"role": "user", "content": given}]
    elif isinstance(given, list):
        messages = [_message(item) for item in given]
    else:
        raise OpenAiFault(f"'input' is {type(given).__name__}, expected a text or a list of messages", "input")
    if instructions := fields.get("instructions"):
        messages = [{"role": "system", "content": instructions}, *messages]
    result = {name: fields[name] for name in _SAME if fields.get(name) is not None} | {"messages": messages}
    if (limit := fields.get("max_output_tokens")) is not None:
        result["max_completion_tokens"] = limit
    if tools := fields.get("tools"):
        result["tools"] = [_tool(tool) for tool in tools]
    if (choice := fields.get("tool_choice")) is not None:
        result["tool_choice"] = choice
    return result


def _tool(tool: Any) -> Any:
    if isinstance(tool, dict) and tool.get("type") == "function" and "function" not in tool:
        return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
    return tool


def _message(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise OpenAiFault(f"an item of 'input' is {type(item).__name__}, expected a message", "input")
    match item.get("type"):
        case "function_call":
            function = {"name": item.get("name", ""), "arguments": item.get("arguments", "")}
            call = {"id": item.get("call_id", ""), "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "function_call_output":
            return {"role": "tool", "tool_call_id": item.get("call_id", ""), "content": str(item.get("output", ""))}
        case _:
            content = item.get("content")
            if isinstance(content, list):
                content = [{**part, "type": "text"} if part.get("type") in _TEXTS else part for part in content]
            return {"role": item.get("role", "user"), "content": content}


class ResponseForm(TextForm):
    """``/v1/responses``. It has one choice."""

    def __init__(self, model: str, fields: dict[str, Any]) -> None:
        super().__init__(model, includes_usage=True)
        self._id, self._message_id = f"resp_{uuid4().hex}", f"msg_{uuid4().hex}"
        self._fields = fields
        self._number = 0
        self._whole: WholeAnswer | None = None

    def _response(self, status: str, output: list[dict[str, Any]], usage: dict[str, Any] | None, why: str | None = None) -> Any:
        given = self._fields
        return {
            "id": self._id, "object": "response", "created_at": self.created, "status": status, "model": self.model,
            "output": output, "usage": usage, "error": None,
            "incomplete_details": None if why is None else {"reason": why},
            "instructions": given.get("instructions"), "metadata": given.get("metadata") or {},
            "parallel_tool_calls": True, "temperature": given.get("temperature"), "top_p": given.get("top_p"),
            "tool_choice": given.get("tool_choice") or "auto", "tools": given.get("tools") or [],
            "max_output_tokens": given.get("max_output_tokens"),
        }  # fmt: skip

    def _message(self, text: str, status: str) -> dict[str, Any]:
        content = [self._text(text)] if status == "completed" else []
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
