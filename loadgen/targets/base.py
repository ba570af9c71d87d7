"""What is measured, as a worker sees it."""

from typing import Any, Protocol, Self, TypeAlias

import msgspec

from loadgen.pool import Pool, Tensors

RawAnswer: TypeAlias = "bytes | Tensors"
"""An answer as it came; bytes are decoded only when they are checked, and only once for each that is new."""


class RequestFailedError(Exception):
    """The server answered with an error. The text is short, and equal for errors of one kind, since they are counted by it."""


class TargetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go, and how. Travels to the workers as JSON.

    Attributes:
        protocol: "http" or "grpc" (Open Inference Protocol), "raw" (POST of a body that `codec` writes), or the import path
            ("package.module:name") of a function ``(spec, pool) -> Target`` for what takes more than one request.
        url: ``http://host:port`` or ``https://...``; for gRPC ``host:port`` or ``grpcs://host:port``.
        model: The model's name; or the path of a raw request.
        has_batch_dim: Whether tensors are sent with a batch dimension of 1, as models with batching of Triton's want them.
        codec: For "raw": the import path of a module with ``pack(Tensors) -> bytes`` and ``unpack(bytes) -> Tensors``.
        headers: Added to each request, e.g. an API key.
        max_connections: HTTP requests in flight at the same time at most, in each worker; others wait, and their latency counts.
        ca: For TLS: file of the authorities that are trusted; the system's if empty.
        cert, key: For TLS: files of our own certificate and its key, which may be one.
        options: For a function of one's own.
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
    options: dict[str, Any] = {}


class Target(Protocol):
    """A client of one server inside one event loop. Entered before the first request, left after the last."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def infer(self, index: int) -> RawAnswer:
        """Sends the pool's request `index` and waits for its answer.

        Raises:
            RequestFailedError: If the server answers with an error, or closes the connection.
        """
        ...

    def decode(self, answer: RawAnswer) -> Tensors:
        """The tensors of an answer.

        Raises:
            ValueError: If it is malformed.
        """
        ...


class MakeTarget(Protocol):
    """A function that a `TargetSpec.protocol` may name."""

    def __call__(self, spec: TargetSpec, pool: Pool) -> Target: ...
