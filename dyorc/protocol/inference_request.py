"""Requests as bytes: values from user code become the binary form of the Open Inference Protocol."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import msgspec
import numpy as np

from dyorc.core.arrays import Array, as_array, dtype_of
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.protocol import header_names, media_types
from dyorc.protocol.metadata import ModelMetadata, TensorMetadata
from dyorc.protocol.parameter_names import BINARY_DATA, BINARY_DATA_OUTPUT, BINARY_DATA_SIZE, EXPLAIN, PRIORITY
from dyorc.protocol.raw import encode_bytes

Piece: TypeAlias = bytes | memoryview

_CHUNK_BYTES = 256 * 1024
"""Most bytes passed to the socket at once. Shorter pieces are joined, since a copy costs less than a system call; of a longer
piece, the rest would be copied for each part that a socket takes."""

_STATIC_TYPES = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that can be sent any number of times.

    Attributes:
        path: With its query, quoted.
        pieces: The body; large tensors are views of the caller's arrays.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    pieces: tuple[Piece, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Length of the body."""
        return sum(len(piece) for piece in self.pieces)

    def with_header(self, name: str, value: str) -> Self:
        """Returns the same request with one more header."""
        return replace(self, headers=(*self.headers, (name, value)))

    def chunks(self) -> Iterator[Piece]:
        """Yields the body in pieces of a size that suits sockets."""
        small: list[Piece] = []
        num_bytes = 0
        for piece in self.pieces:
            if num_bytes + len(piece) <= _CHUNK_BYTES:
                small.append(piece)
                num_bytes += len(piece)
                continue
            if small:
                yield b"".join(small)
            small, num_bytes = [], 0
            view = memoryview(piece)
            for at in range(0, len(view), _CHUNK_BYTES):
                yield view[at : at + _CHUNK_BYTES]
        if small:
            yield b"".join(small)


@dataclass(frozen=True, slots=True)
class Options:
    """A caller's options for one inference, besides its inputs.

    Attributes:
        timeout_s: For the whole operation, retries included; None: the client's.
        priority: 1 is the highest; 0, the default, comes last.
        explain: Whether the answer comes with the request's story.
        request_id: Returned with the answer.
        outputs: Names of the outputs to send; None, or nothing, for all.
    """

    version: str | None = None
    timeout_s: float | None = None
    priority: int = 0
    explain: bool = False
    request_id: str = ""
    outputs: Sequence[str] | None = None


def infer_request(
    path: str, metadata: ModelMetadata, values: Mapping[str, Any], options: Options, **fields: Any
) -> PreparedRequest:
    """Builds a request for inference, whose answer's tensors are to be raw bytes.

    Args:
        given: Inputs and parameters by name.
        fields: More for the top level of the JSON.

    Raises:
        InvalidInputError: If a value does not match its name.
    """
    heads, pieces, parameters = _encode(metadata, values)
    parameters[BINARY_DATA_OUTPUT] = True
    if options.priority:
        parameters[PRIORITY] = options.priority
    if options.explain:
        parameters[EXPLAIN] = True
    content: dict[str, Any] = {**fields, "inputs": heads, "parameters": parameters}
    if options.request_id:
        content["id"] = options.request_id
    if options.outputs is not None:
        content["outputs"] = [{"name": name, "parameters": {BINARY_DATA: True}} for name in options.outputs]
    try:
        head = msgspec.json.encode(content)
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise InvalidInputError(f"the request to {metadata.name!r} cannot be written as JSON: {error}") from error
    heading = (("content-type", media_types.TENSORS), (header_names.JSON_LENGTH, str(len(head))))
    return PreparedRequest("POST", path, heading, (head, *pieces))


def _encode(metadata: ModelMetadata, values: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[Piece], dict[str, Any]]:
    """Splits values into heads and bytes of the model's inputs, and parameters."""
    inputs = {tensor.name: tensor for tensor in metadata.inputs}
    heads: list[dict[str, Any]] = []
    pieces: list[Piece] = []
    parameters: dict[str, Any] = {}
    for name, value in values.items():
        if name not in inputs:
            parameters[name] = _parameter(metadata, name, value)
            continue
        array = _array_of(value, inputs[name], f"input {name!r} of {metadata.name!r}")
        dtype = dtype_of(array)
        raw = encode_bytes(array) if dtype is DType.BYTES else _raw(array)
        heads.append({"name": name, "datatype": dtype, "shape": array.shape, "parameters": {BINARY_DATA_SIZE: len(raw)}})
        pieces.append(raw)
    return heads, pieces, parameters


def _array_of(value: Any, tensor: TensorMetadata, label: str) -> Array:
    if tensor.datatype is not DType.BYTES or tensor.shape:
        return as_array(value, tensor.datatype, label)
    advice = "structured values go here as JSON text, json.dumps(value)"
    try:
        array = as_array(value, tensor.datatype, label)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error}; {advice}") from error
    if array.ndim:
        raise InvalidInputError(f"{label} has rank {array.ndim} (shape {list(array.shape)}), expected one text; {advice}")
    return array


def _raw(array: Array) -> Piece:
    if array.size == 0:
        return b""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _parameter(metadata: ModelMetadata, name: str, value: Any) -> Any:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if not isinstance(value, _STATIC_TYPES):
        raise InvalidInputError(
            f"model {metadata.name!r} has no input {name!r}, its inputs are {[tensor.name for tensor in metadata.inputs]}; and "
            f"{type(value).__name__} cannot be a parameter, expected bool, int, float or str"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError(f"parameter {name!r} of model {metadata.name!r} is {value}, expected a finite number")
    return value
