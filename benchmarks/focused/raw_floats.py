"""One tensor of float32 as bare bytes: how peers without a tensor protocol are talked to, where the shape is known."""

from __future__ import annotations

import numpy as np

from loadgen.pool import Tensors

OUTPUT = "output"


def pack(tensors: Tensors) -> bytes:
    """The one input's bytes."""
    (array,) = tensors.values()
    return array.tobytes()


def unpack(body: bytes) -> Tensors:
    """The one output, flat."""
    return {OUTPUT: np.frombuffer(body, np.float32)}
