"""Outputs of inference requests over any protocol: which are wanted in which form, and those for client memory.

The classification extension sends an output's highest values with their positions instead of the output itself. Source:
triton-inference-server/server, docs/protocol/extension_classification.md. Each class is a text ``<value>:<index>``; the optional
third part, a label, is left out, as models here declare none.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dyorc.core.arrays import Array
from dyorc.core.tensor import DType
from dyorc.errors import ClientMemoryError, InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.client_memory import RegionSpan
from dyorc.gateway.request_inputs import span_of
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.request_parameters import flag
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
        span: Where in client memory to write it instead of sending it; None to send it.
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
    """Returns all outputs, for a client that does not choose."""
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


def put_output(array: Array, dtype: DType, span: RegionSpan, name: str) -> dict[str, Any]:
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


_WITHOUT_ORDER = frozenset({DType.BOOL, DType.BYTES})


def num_classes_of(parameters: Mapping[str, Any], name: str, dtype: DType) -> int:
    """Returns how many classes of an output are asked for; 0: the output itself.

    Raises:
        InvalidInputError: If the parameter is not such a number, or the output is not numeric.
    """
    num = parameters.get(CLASSIFICATION, 0)
    if not isinstance(num, int) or isinstance(num, bool) or num < 0:
        raise InvalidInputError(f"parameter {CLASSIFICATION!r} of output {name!r} is {num!r}, expected a number of classes")
    if num and dtype in _WITHOUT_ORDER:
        raise InvalidInputError(f"output {name!r} is {dtype}, expected numbers, as classes are ranked")
    return num


def top_classes(array: Array, num: int) -> Array:
    """Returns the `num` highest values, or all if there are fewer, as BYTES texts with their positions in the flat array.

    The highest comes first, of equal ones the lower position; NaN counts as minus infinity. Values are written with as few
    digits as identify them within their type, as in the protocol's examples.
    """
    flat = array.reshape(-1)
    texts = [f"{flat[at]!s}:{at}".encode() for at in _highest(_ranked(flat), num).tolist()]
    classes = np.empty(len(texts), dtype=object)
    classes[:] = texts
    return classes


def _ranked(flat: Array) -> Array:
    """Returns the values as numbers that NumPy can sort, NaN among the lowest."""
    if np.issubdtype(flat.dtype, np.integer):
        return flat
    values = flat.astype(np.result_type(flat.dtype, np.float32), copy=False)
    return np.where(np.isnan(values), -np.inf, values)


def _highest(values: Array, num: int) -> Array:
    """Returns the positions of the highest values. Sorts only the candidates."""
    among = np.arange(len(values))
    if num < len(values):
        least = np.partition(values, len(values) - num)[len(values) - num]
        among = np.flatnonzero(values >= least)
    upwards = np.argsort(values[among][::-1], kind="stable")  # reversed twice, so that equal values keep their order
    return among[::-1][upwards][::-1][:num]
