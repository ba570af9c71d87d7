"""The Open Inference Protocol (version 2) over HTTP/1.1, tensors as raw bytes."""

from collections.abc import Callable
from typing import Self

from loadgen.pool import Pool, Tensors
from loadgen.targets.base import RawAnswer, TargetSpec
from loadgen.targets.connections import Connections
from loadgen.targets.failures import http_failure
from loadgen.targets.layout import (
    JSON_BYTES,
    http_post,
    oip_answer,
    oip_parts,
    oip_request,
    with_batch_dim,
    without_batch_dim,
)
from loadgen.targets.part_reading import FrameWatch, stack_parts


class HttpTarget:
    """A client of a server of the protocol. All requests are encoded when it is made.

    Raises:
        ValueError: If a request of the pool cannot be written.
    """

    def __init__(self, spec: TargetSpec, pool: Pool) -> None:
        self._spec = spec
        self._connections = Connections(spec)
        self._requests = [self._encode(tensors) for tensors in pool.inputs]

    def _encode(self, tensors: Tensors) -> bytes:
        spec = self._spec
        tensors = with_batch_dim(tensors) if spec.has_batch_dim else tensors
        path, headers, body = oip_request(spec.model, tensors, is_streamed=spec.is_streamed)
        return http_post(spec.url, path, headers, spec.headers, body)

    async def __aenter__(self) -> Self:
        await self._connections.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._connections.__aexit__(*error)

    async def infer(self, index: int) -> RawAnswer:
        status, json_bytes, body = await self._connections.exchange(self._requests[index])
        if status != 200:
            raise http_failure(status, body)
        if json_bytes < 0:
            json_bytes = len(body)
        return json_bytes.to_bytes(JSON_BYTES, "little") + body

    async def stream(self, index: int, on_part: Callable[[], None]) -> RawAnswer:
        watch = FrameWatch(on_part)
        status, _, body = await self._connections.exchange(self._requests[index], watch.feed)
        if status != 200:
            raise http_failure(status, body)
        watch.check()
        return body

    def decode(self, answer: RawAnswer) -> Tensors:
        if self._spec.is_streamed and isinstance(answer, bytes):
            parts = oip_parts(answer)
            return stack_parts([without_batch_dim(part) for part in parts] if self._spec.has_batch_dim else parts)
        tensors = oip_answer(answer) if isinstance(answer, bytes) else answer
        return without_batch_dim(tensors) if self._spec.has_batch_dim else tensors
