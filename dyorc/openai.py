"""What clients of OpenAI's API send, and what a workflow answers, as pydantic models.

A workflow takes part in the API by the type of its parameter: ``async def chat(request: dyorc.openai.ChatRequest)``. It yields,
or returns, texts or `ChatDelta`s. Fields that are not listed here are kept, since clients send new ones: ``request.model_extra``.

Source: OpenAI's description of its API, github.com/openai/openai-openapi.
"""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

ROLE = "x-openai-request"
"""The key in a JSON Schema that says which requests a model of these takes: a gateway may know no more of it."""


Priority: TypeAlias = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""1 is the highest; 0 means none. It counts among the requests of one API key."""


def _config(role: str) -> ConfigDict:
    return ConfigDict(extra="allow", json_schema_extra={ROLE: role})


Role: TypeAlias = Literal["developer", "system", "user", "assistant", "tool", "function"]
"""Who says a message."""

_MAX_MESSAGES = 2048
"""As in OpenAI's own API. To check hundreds of thousands would take seconds."""


class ChatMessage(BaseModel):
    """A message of a conversation. Only the roles ``assistant`` and ``function`` may lack a content."""

    model_config = ConfigDict(extra="allow")

    role: Role
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if self.content is None and self.role not in ("assistant", "function"):
            raise PydanticCustomError("missing_content", "a message of the role {role} needs a 'content'", {"role": self.role})
        return self

    @property
    def text(self) -> str:
        """Its text; of a content in parts, the texts among them."""
        if isinstance(self.content, list):
            return "".join(str(part.get("text") or "") for part in self.content)
        return self.content or ""


class StreamOptions(BaseModel):
    """How an answer is streamed."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool = False


class ChatRequest(BaseModel):
    """``POST /v1/chat/completions``; also what ``/v1/responses`` becomes."""

    model_config = _config("chat")

    model: str
    messages: list[ChatMessage] = Field(min_length=1, max_length=_MAX_MESSAGES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    n: int = Field(default=1, ge=1)
    stop: str | list[str] | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    service_tier: str | None = None
    priority: Priority | None = None
    user: str | None = None

    @property
    def limit(self) -> int | None:
        """Most tokens that the answer may have; None: the client sets no limit."""
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(BaseModel):
    """``POST /v1/completions``. A workflow gets one prompt at a time."""

    model_config = _config("completion")

    model: str
    prompt: str | list[str] | list[int] | list[list[int]]
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    n: int = Field(default=1, ge=1)
    stop: str | list[str] | None = None
    seed: int | None = None
    service_tier: str | None = None
    priority: Priority | None = None
    user: str | None = None

    @property
    def limit(self) -> int | None:
        """Most tokens that the answer may have; None: the client sets no limit."""
        return self.max_tokens


class _EmbeddingFields(BaseModel):
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    priority: Priority | None = None
    user: str | None = None


class EmbeddingRequest(_EmbeddingFields):
    """``POST /v1/embeddings``. The workflow returns a list of numbers for each input, or a tensor [inputs, dimensions].

    Requests with tokens in place of texts are refused; a workflow that takes them has a `TokenEmbeddingRequest`.
    """

    model_config = _config("embedding")

    input: str | list[str]

    @property
    def inputs(self) -> list[str]:
        """The texts, one for each embedding."""
        return [self.input] if isinstance(self.input, str) else self.input


class TokenEmbeddingRequest(_EmbeddingFields):
    """``POST /v1/embeddings``, for a workflow that takes texts as well as lists of tokens."""

    model_config = _config("token_embedding")

    input: str | list[str] | list[int] | list[list[int]]

    @property
    def inputs(self) -> list[str] | list[list[int]]:
        """The inputs, one for each embedding: texts, or lists of tokens."""
        if isinstance(self.input, str):
            return [self.input]
        if self.input and isinstance(self.input[0], int):
            return [self.input]  # pyright: ignore[reportReturnType]
        return self.input  # pyright: ignore[reportReturnType]


class RerankRequest(BaseModel):
    """``POST /v1/rerank``, as Jina and Cohere have it. The workflow returns a score for each document: a list, or a tensor."""

    model_config = _config("rerank")

    model: str
    query: str
    documents: list[str | dict[str, Any]] = Field(min_length=1)
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = False
    priority: Priority | None = None

    @property
    def texts(self) -> list[str]:
        """The documents' texts."""
        return [document if isinstance(document, str) else str(document.get("text", "")) for document in self.documents]


class TokenUsage(BaseModel):
    """How many tokens a request and its answer have."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@with_config(ConfigDict(extra="allow"))
class FunctionDelta(TypedDict, total=False):
    """A function that an answer calls, or a further piece of its arguments, which are JSON."""

    name: str | None
    arguments: str | None


@with_config(ConfigDict(extra="allow"))
class ToolCallDelta(TypedDict, total=False):
    """A call of a tool, or a further piece of one. Pieces of the same call have the same index."""

    index: int
    id: str | None
    type: str | None
    function: FunctionDelta | None


class ChatDelta(BaseModel):
    """A part of an answer, where it is more than a text.

    Attributes:
        tool_calls: As in the API; one without an ``index`` is a call of its own.
        finish_reason: ``stop``, ``length``, ``tool_calls`` or ``content_filter``, with the last part. A workflow that ends at the
            client's `limit` says ``length``; without a word of it, an answer has ended by itself.
        usage: What to tell the client; otherwise each part counts as a token.
    """

    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None
    finish_reason: str | None = None
    usage: TokenUsage | None = None


Generation: TypeAlias = ChatRequest | CompletionRequest
"""A request whose answer is a text."""
