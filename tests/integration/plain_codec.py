"""A codec without a head, and a target without a server; both named by their import path."""

from typing import Self

import numpy as np

from loadgen.pool import Pool, Tensors
from loadgen.targets.base import RawAnswer, RequestFailedError, Target, TargetSpec


def pack(tensors: Tensors) -> bytes:
    """Returns the bytes of the only input."""
    (array,) = tensors.values()
    return array.tobytes()


def unpack(body: bytes) -> Tensors:
    """Returns the only output."""
    return {"y": np.frombuffer(body, np.float32)}


class OwnTarget:
    """Answers correctly, with tensors, except for the requests that the spec's options name."""

    def __init__(self, spec: TargetSpec, pool: Pool) -> None:
        self._fails = spec.options["fails"]
        self._pool = pool

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        return

    async def infer(self, index: int) -> RawAnswer:
        if index in self._fails:
            raise RequestFailedError("as it was told")
        return self._pool.answers[index]

    def decode(self, answer: RawAnswer) -> Tensors:
        assert not isinstance(answer, bytes)
        return answer


def open_own(spec: TargetSpec, pool: Pool) -> Target:
    """Opens a target, as `TargetSpec.protocol` requires."""
    return OwnTarget(spec, pool)
