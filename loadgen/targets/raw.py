"""Posts bodies that a codec encodes, for servers without a tensor protocol."""

import importlib
from collections.abc import Callable
from typing import Protocol, Self, cast

from loadgen.pool import Pool, Tensors
from loadgen.targets.base import RawAnswer, TargetSpec
from loadgen.targets.connections import Connections
from loadgen.targets.failures import http_failure
from loadgen.targets.layout import http_post, with_batch_dim, without_batch_dim
from loadgen.targets.part_reading import EndWatch

DEFAULT_PART_END = b"\n"


class Codec(Protocol):
    """The contract of the module that `TargetSpec.codec` names. For streams it may have `PART_END`, the bytes that end a part, if
    they are not a line break; `unpack` then gets a whole stream."""

    def pack(self, tensors: Tensors) -> bytes: ...

    def unpack(self, body: bytes) -> Tensors: ...


class RawTarget:
    """A client that posts the codec's bodies to one path.

    Raises:
        ValueError: If there is no such codec.
    """

    def __init__(self, spec: TargetSpec, pool: Pool) -> None:
        self._has_batch_dim = spec.has_batch_dim
        self._codec = _codec(spec.codec)
        self._connections = Connections(spec)
        path = "/" + spec.model.lstrip("/")
        self._requests = [
            http_post(
                spec.url, path, (), spec.headers, self._codec.pack(with_batch_dim(inputs) if spec.has_batch_dim else inputs)
            )
            for inputs in pool.inputs
        ]

    async def __aenter__(self) -> Self:
        await self._connections.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._connections.__aexit__(*error)

    async def infer(self, index: int) -> RawAnswer:
        status, _, body = await self._connections.exchange(self._requests[index])
        if status != 200:
            raise http_failure(status, body)
        return body

    async def stream(self, index: int, on_part: Callable[[], None]) -> RawAnswer:
        watch = EndWatch(getattr(self._codec, "PART_END", DEFAULT_PART_END), on_part)
        status, _, body = await self._connections.exchange(self._requests[index], watch.feed)
        if status != 200:
            raise http_failure(status, body)
        return body

    def decode(self, answer: RawAnswer) -> Tensors:
        tensors = self._codec.unpack(answer) if isinstance(answer, bytes) else answer
        return without_batch_dim(tensors) if self._has_batch_dim else tensors


def _codec(path: str) -> Codec:
    try:
        module = importlib.import_module(path) if path else None
    except ImportError as error:
        raise ValueError(f"the codec {path!r} cannot be imported: {error}") from error
    if not (hasattr(module, "pack") and hasattr(module, "unpack")):
        raise ValueError(f"the codec is {path!r}, expected a module with pack(tensors) and unpack(body)")
    return cast(Codec, module)
