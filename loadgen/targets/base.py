"""The measured target, as a worker sees it."""

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from loadgen.pool import Pool, Tensors

RawAnswer: TypeAlias = "bytes | Tensors"
"""An answer as it came. It is decoded only when it is checked, and equal answers only once."""


class RequestFailedError(Exception):
    """The server answered with an error. The text is short, and the same for errors of one kind, since errors are counted by
    their text."""


class TargetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go, and how to send them. Travels to the workers as JSON.

    Attributes:
        protocol: "http" or "grpc" (Open Inference Protocol), "raw" (POST of a body that `codec` writes), or the import path
            ("package.module:name") of a function ``(spec, pool) -> Target``, for targets that need more than one request.
        url: ``http://host:port`` or ``https://...``; for gRPC ``host:port`` or ``grpcs://host:port``.
        model: The model's name; or the path of a raw request.
        has_batch_dim: Whether tensors are sent with a batch dimension of 1, as Triton's models with batching expect them.
        codec: For "raw": the import path of a module with ``pack(Tensors) -> bytes`` and ``unpack(bytes) -> Tensors``.
        headers: Added to each request, e.g. an API key.
        max_connections: The most HTTP requests in flight at a time, in each worker. Others wait, and their wait counts as
            latency.
        ca: For TLS: a file of trusted authorities; the system's if empty.
        cert, key: For TLS: files of the client's certificate and its key, which may be the same file.
        is_streamed: Whether answers are asked for in parts, and the time of each part is recorded.
        options: For a function of the user's own.
    """

    protocol: str
    url: str
    model: str = ""
    has_batch_dim: bool = False
    codec: str = ""
    headers: dict[str, str] = {}
    max_connections: int = 1024
    ca: str = ""
    cert: str = ""
    key: str = ""
    is_streamed: bool = False
    options: dict[str, Any] = {}


class Target(Protocol):
    """A client of one server in one event loop. Enter it before the first request, leave it after the last."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def infer(self, index: int) -> RawAnswer:
        """Sends the pool's request `index` and waits for its answer.

        Raises:
            RequestFailedError: If the server answers with an error, or closes the connection.
        """
        ...

    def decode(self, answer: RawAnswer) -> Tensors:
        """Returns the tensors of an answer.

        Raises:
            ValueError: If it is malformed.
        """
        ...


@runtime_checkable
class StreamingTarget(Target, Protocol):
    """A client that can also ask for answers in parts."""

    async def stream(self, index: int, on_part: Callable[[], None]) -> RawAnswer:
        """Sends the pool's request `index`, calls `on_part` when a part has come, and returns the whole answer when the last has.
        `decode` stacks the parts of such an answer along a new first dimension.

        Raises:
            RequestFailedError: If the server answers with an error, before or after parts, or closes the connection.
        """
        ...


class MakeTarget(Protocol):
    """A function that a `TargetSpec.protocol` may name."""

    def __call__(self, spec: TargetSpec, pool: Pool) -> Target: ...
