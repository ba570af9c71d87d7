"""Outputs of inference requests over any protocol: which are wanted in which form, and those for client memory."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dyorc.core.arrays import Array
from dyorc.core.tensor import DType
from dyorc.errors import ClientMemoryError, InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.classification import num_classes_of, top_classes
from dyorc.gateway.client_memory import RegionSpan
from dyorc.gateway.inputs import span_of
from dyorc.gateway.parameters import flag
from dyorc.gateway.request_memory import RequestMemory
from dyorc.protocol.parameter_names import (
    BINARY_DATA,
    CLASSIFICATION,
    SHARED_MEMORY_BYTE_SIZE,
    SHARED_MEMORY_OFFSET,
    SHARED_MEMORY_REGION,
)
from dyorc.protocol.raw import encode_bytes


class WantedOutput(NamedTuple):
    """An output to send.

    Attributes:
        at: Its position in the model's signature.
        is_binary: Whether to send raw bytes.
        span: Where in client memory to put it instead of sending it; None if it is sent.
        num_classes: How many of its highest values to send instead; 0: the output itself.
    """

    at: int
    is_binary: bool
    span: RegionSpan | None = None
    num_classes: int = 0

    def array(self, arrays: Sequence[Array]) -> Array:
        """Returns the array to send, given all outputs of the model."""
        array = np.asarray(arrays[self.at], order="C")
        return top_classes(array, self.num_classes) if self.num_classes else array


def all_outputs(model: Model, *, is_binary: bool) -> list[WantedOutput]:
    """Returns what to send to a client that asks for nothing in particular."""
    return [WantedOutput(at, is_binary) for at in range(len(model.signature.outputs.tensors))]


def wanted_output(
    name: str, parameters: Mapping[str, Any], by_default: bool, model: Model, memory: RequestMemory
) -> WantedOutput:
    """Returns an output that was asked for.

    Args:
        by_default: Whether to send raw bytes if its parameters do not say.

    Raises:
        InvalidInputError: If there is no such output, or not in this form.
        ClientError: See `RequestMemory.span`.
    """
    names = model.signature.outputs.names
    if name not in names:
        raise InvalidInputError(f"model {model.name!r} has no output {name!r}; it has {list(names)}")
    span = span_of(parameters, "output", name, memory)
    if span is not None:
        for other in (CLASSIFICATION, BINARY_DATA):
            if parameters.get(other, False):
                raise InvalidInputError(f"Output can't set both 'shared_memory_region' and '{other}' (output {name!r})")
    at = names.index(name)
    num_classes = num_classes_of(parameters, name, model.signature.outputs.tensors[at].dtype)
    return WantedOutput(at, flag(parameters, BINARY_DATA, by_default, f"output {name!r}"), span, num_classes)


def put(array: Array, dtype: DType, span: RegionSpan, name: str) -> dict[str, Any]:
    """Copies an output to client memory. Returns the parameters that say where it is and how long.

    Raises:
        ClientMemoryError: If it does not fit there.
        InvalidInputError: If the client truncated its memory.
    """
    raw = memoryview(encode_bytes(array)) if dtype is DType.BYTES else array.reshape(-1).view(np.uint8).data
    if len(raw) > span.num_bytes:
        raise ClientMemoryError(
            f"shared memory size specified with the request for output '{name}' ({span.num_bytes} bytes) should be at least "
            f"{len(raw)} bytes to hold the results"
        )
    span.region.write(raw, span.offset)
    place = {SHARED_MEMORY_REGION: span.region.name, SHARED_MEMORY_BYTE_SIZE: len(raw)}
    return place | ({SHARED_MEMORY_OFFSET: span.offset} if span.offset else {})
