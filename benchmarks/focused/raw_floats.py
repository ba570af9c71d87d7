"""One float32 tensor as bare bytes, for peers without a tensor protocol where the shape is known."""

from __future__ import annotations

import numpy as np

from loadgen.pool import Tensors

OUTPUT = "output"


def pack(tensors: Tensors) -> bytes:
    """Returns the bytes of the only input."""
    (array,) = tensors.values()
    return array.tobytes()


def unpack(body: bytes) -> Tensors:
    """Returns the only output, flat."""
    return {OUTPUT: np.frombuffer(body, np.float32)}
