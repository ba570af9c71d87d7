"""Raw binary requests: a body that is nothing but the bytes of a model's only input.

Source: triton-inference-server/server, docs/protocol/extension_binary_data.md, "Raw Binary Request". For a BYTES input, the body
is one element's bytes, without the length that precedes each element elsewhere.
"""

import math

import numpy as np

from dyorc.authoring.spec import TensorSpec
from dyorc.core.arrays import Array
from dyorc.core.tensor import ITEM_BYTES, DType
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.request_inputs import Head, from_bytes


def read_raw_input(raw: bytes | memoryview, model: Model) -> dict[str, Array]:
    """Returns a model's only input, by its name.

    Raises:
        InvalidInputError: If the model has several inputs, if the shape cannot be derived from the number of bytes, or if the
            bytes do not fit it.
    """
    inputs = model.signature.inputs
    if len(inputs) != 1:
        raise InvalidInputError(
            f"a request without JSON (Inference-Header-Content-Length 0) needs a model with one input; "
            f"model {model.name!r} has {[spec.name for spec in inputs]}"
        )
    spec = inputs[0]
    if spec.dtype is DType.BYTES:
        return {spec.name: _one_item(raw, spec)}
    return {spec.name: from_bytes(Head(spec.name, spec.dtype, _shape_of(spec, len(raw))), raw)}


def _one_item(raw: bytes | memoryview, spec: TensorSpec) -> Array:
    shape = spec.wire_shape
    if -1 in shape or math.prod(shape) != 1:
        raise InvalidInputError(
            f"input {spec.name!r} has shape {shape}; without JSON, a BYTES input must have one element, shape [1]"
        )
    array = np.empty(shape, dtype=object)
    array.reshape(-1)[0] = bytes(raw)
    return array


def _shape_of(spec: TensorSpec, num_bytes: int) -> list[int]:
    shape = spec.wire_shape
    if shape.count(-1) > 1:
        raise InvalidInputError(
            f"input {spec.name!r} has {shape.count(-1)} dimensions of any size {shape}; without JSON, it can have at most one"
        )
    if -1 not in shape:
        return shape
    row_bytes = math.prod(size for size in shape if size != -1) * ITEM_BYTES[spec.dtype]
    if row_bytes == 0 or num_bytes % row_bytes:
        raise InvalidInputError(
            f"input {spec.name!r} has {num_bytes} bytes, expected a multiple of {row_bytes} ({spec.dtype}{shape}, -1: any size)"
        )
    return [num_bytes // row_bytes if size == -1 else size for size in shape]
