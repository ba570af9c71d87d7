"""The text of an answer on its way to a client of OpenAI's API: what a workflow's parts say, cut off at stop texts."""

import codecs
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError

from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.authoring.values import ContentKind
from dyorc.core.arrays import Array
from dyorc.core.tensor import DType
from dyorc.errors import ExecutionError, UnsupportedError
from dyorc.gateway.http.openai.openai_requests import problem_of
from dyorc.openai import ChatDelta, TokenUsage, ToolCallDelta


class TextPart(NamedTuple):
    """A part of an answer: bytes of text, or a delta."""

    raw: bytes = b""
    delta: ChatDelta | None = None


def answer_part(spec: TensorSpec, array: Array) -> TextPart:
    """Returns what a workflow's part says.

    Raises:
        UnsupportedError: If it is neither a text nor a `ChatDelta`.
        ExecutionError: If it is a malformed `ChatDelta`; names the field.
    """
    if isinstance(spec, ValueSpec) and spec.kind is ContentKind.JSON:
        value = msgspec.json.decode(bytes(array[()]))
        if isinstance(value, str):
            return TextPart(value.encode())
        if isinstance(value, dict):
            return TextPart(delta=_delta_of(spec.name, value))
    elif spec.dtype is DType.BYTES and array.ndim == 0:
        return TextPart(bytes(array[()]))
    raise UnsupportedError(f"output {spec.name!r} is {spec.dtype}{spec.describe()}, expected a text or a dyorc.openai.ChatDelta")


def _delta_of(name: str, value: Any) -> ChatDelta:
    try:
        return ChatDelta.model_validate(value)
    except ValidationError as error:
        raise ExecutionError(f"output {name!r} of the workflow is no dyorc.openai.ChatDelta: {problem_of(error)[1]}") from None


class StopCutter:
    """Passes a text on piece by piece, up to the first stop text. Holds back what may be the beginning of one.

    Args:
        stops: The stop texts; none of them is empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._most = max((len(stop) for stop in stops), default=0) - 1
        self._held = ""
        self.is_stopped = False

    def add(self, text: str) -> str:
        """Returns what can be passed on, now that `text` has come."""
        if not self._stops:
            return text
        text = self._held + text
        ends = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.is_stopped, self._held = True, ""
            return text[: min(ends)]
        num_held = next(
            (
                size
                for size in range(min(self._most, len(text)), 0, -1)
                if any(stop.startswith(text[-size:]) for stop in self._stops)
            ),
            0,
        )
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def end(self) -> str:
        """Returns what was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


class AnswerChoice:
    """One answer, while it comes.

    Args:
        index: Its number among the answers to one request.
        stops: See `StopCutter`.

    Attributes:
        finish_reason: Why it has ended.
        usage: What the workflow says, or else how many parts there were.
    """

    def __init__(self, index: int, stops: Sequence[str]) -> None:
        self.index = index
        self.finish_reason: str | None = None
        self.usage: TokenUsage | None = None
        self._num_parts = 0
        self._num_calls = 0
        self._cutter = StopCutter(stops)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_stopped(self) -> bool:
        """Whether a stop text has come, so that the rest of the answer is not needed."""
        return self._cutter.is_stopped

    @property
    def counted(self) -> TokenUsage:
        """Its usage."""
        return self.usage or TokenUsage(completion_tokens=self._num_parts)

    def add(self, part: TextPart) -> dict[str, Any]:
        """Returns the fields of a delta; none if there is nothing to send yet."""
        self._num_parts += 1
        delta = part.delta
        if delta is None:
            text = self._cutter.add(self._utf8.decode(part.raw))
            return {"content": text} if text else {}
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.usage = delta.usage or self.usage
        if delta.content is None and delta.reasoning_content is None and delta.tool_calls is None:
            self._num_parts -= 1  # it only says the usage, or why the answer ends
        fields: dict[str, Any] = {}
        if delta.content is not None and (text := self._cutter.add(delta.content)):
            fields["content"] = text
        if delta.reasoning_content is not None:
            fields["reasoning_content"] = delta.reasoning_content
        if delta.tool_calls is not None:
            fields["tool_calls"] = [self._numbered(call) for call in delta.tool_calls]
            self.finish_reason = self.finish_reason or "tool_calls"
        return fields

    def _numbered(self, call: ToolCallDelta) -> dict[str, Any]:
        """Returns a call of a tool, or a piece of one, with its index, which clients need."""
        index = call.get("index", self._num_calls)
        self._num_calls = max(self._num_calls, index + 1)
        return {**call, "index": index}

    def end(self) -> dict[str, Any]:
        """Returns the fields of the last delta, and decides why the answer has ended."""
        text = "" if self.is_stopped else self._cutter.add(self._utf8.decode(b"", True)) + self._cutter.end()
        if self.is_stopped:
            self.finish_reason = "stop"
        self.finish_reason = self.finish_reason or "stop"
        return {"content": text} if text else {}
