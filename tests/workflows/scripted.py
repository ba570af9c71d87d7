"""Models that answer in parts as a test's script says, for tests of a server's shell."""

from collections.abc import AsyncGenerator
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float, Int

import dyorc
from dyorc.authoring.signature import Signature
from dyorc.authoring.workflow import Workflow


class Part(TypedDict):
    """One part."""

    text: dyorc.Bytes[np.ndarray, ""]
    index: Int[np.ndarray, ""]


async def _count(num: Int[np.ndarray, ""]) -> Part:
    raise NotImplementedError


async def _fill(num: Int[np.ndarray, ""]) -> Float[np.ndarray, " n"]:
    raise NotImplementedError


def _streaming(name: str, like: Any) -> Workflow:
    async def parts() -> AsyncGenerator[Any]:
        raise NotImplementedError
        yield

    return Workflow(name, parts, Signature.of(f"workflow {name!r}", like))  # pyright: ignore[reportArgumentType]


count = _streaming("count", _count)
"""A model with small parts: a text and its number."""

fill = _streaming("fill", _fill)
"""A model with large parts."""
