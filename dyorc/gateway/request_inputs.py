"""Inputs of inference requests over any protocol: raw bytes and ranges of client memory as arrays."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dyorc.core.arrays import Array, numpy_dtype
from dyorc.core.tensor import ITEM_BYTES, DType
from dyorc.errors import InvalidInputError, TransportError
from dyorc.gateway.client_memory import RegionSpan
from dyorc.gateway.request_memory import RequestMemory
from dyorc.protocol.parameter_names import SHARED_MEMORY_BYTE_SIZE, SHARED_MEMORY_OFFSET, SHARED_MEMORY_REGION
from dyorc.protocol.raw import MAX_RANK, MAX_SIZE, decode_bytes

_PLACE = frozenset({SHARED_MEMORY_REGION, SHARED_MEMORY_BYTE_SIZE, SHARED_MEMORY_OFFSET})

NO_JSON_FORM = frozenset({DType.FP16, DType.BF16})
"""Types that always travel as raw bytes."""


class Head(NamedTuple):
    """Name, type and shape of an input."""

    name: str
    dtype: DType
    shape: Sequence[int]


class SharedInput(NamedTuple):
    """An input in client memory."""

    head: Head
    span: RegionSpan


def read_head(name: str, datatype: str, shape: Sequence[int]) -> Head:
    """Checks name, type and shape of an input.

    Raises:
        InvalidInputError: If the shape is invalid, or the type unknown.
    """
    if len(shape) > MAX_RANK or any(not 0 <= size <= MAX_SIZE for size in shape):
        raise InvalidInputError(
            f"input {name!r} has shape {str(list(shape))[:80]}, expected at most {MAX_RANK} sizes from 0 to {MAX_SIZE}"
        )
    try:
        return Head(name, DType(datatype), shape)
    except ValueError:
        raise InvalidInputError(f"input {name!r} has datatype {datatype!r}, expected one of {[d.value for d in DType]}") from None


def span_of(parameters: Mapping[str, Any], kind: str, name: str, memory: RequestMemory) -> RegionSpan | None:
    """Returns the range of client memory that the parameters of an input or output (`kind`) name; None if they name none.

    Raises:
        InvalidInputError: If they are incomplete or malformed.
        ClientError: See `RequestMemory.span`.
    """
    if _PLACE.isdisjoint(parameters):
        return None
    owner = f"{kind} {name!r}"
    memory.check_allowed()
    if SHARED_MEMORY_REGION not in parameters:
        raise InvalidInputError(f"{owner} has {min(_PLACE & parameters.keys())}, but no shared_memory_region")
    region = parameters[SHARED_MEMORY_REGION]
    if not isinstance(region, str):
        raise InvalidInputError(f"Unable to parse 'shared_memory_region': {owner} has {region!r}, expected a string")
    if SHARED_MEMORY_BYTE_SIZE not in parameters:
        raise InvalidInputError(f"{owner} has shared_memory_region, but no shared_memory_byte_size")
    num_bytes = _count_of(parameters[SHARED_MEMORY_BYTE_SIZE], SHARED_MEMORY_BYTE_SIZE, owner)
    offset = _count_of(parameters.get(SHARED_MEMORY_OFFSET, 0), SHARED_MEMORY_OFFSET, owner)
    return memory.span(region, offset, num_bytes)


def _count_of(value: Any, name: str, owner: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInputError(f"Unable to parse '{name}': {owner} has {value!r}, expected a number of bytes")
    return value


def from_bytes(head: Head, raw: bytes | memoryview) -> Array:
    """Returns an input's array, as a view of its bytes.

    Raises:
        InvalidInputError: If their number does not match its shape.
    """
    if head.dtype is DType.BYTES:
        try:
            return decode_bytes(raw, tuple(head.shape))
        except TransportError as error:
            raise InvalidInputError(f"input {head.name!r}: {error}") from error
    _check_length(head, len(raw))
    return reshape(head, np.frombuffer(raw, numpy_dtype(head.dtype)))


def fetch_inputs(shared: Sequence[SharedInput], memory: RequestMemory) -> dict[str, Array]:
    """Reads inputs from client memory. BYTES are not read in place, so they need not be in the arena.

    Returns:
        Arrays by name.

    Raises:
        InvalidInputError: If a range and its input differ in length.
        DyOrcError: See `RequestMemory.fetch`.
    """
    arrays: dict[str, Array] = {}
    for is_kept in (True, False):
        inputs = [shared_input for shared_input in shared if (shared_input.head.dtype is not DType.BYTES) == is_kept]
        for head, span in inputs:
            _check_length(head, span.num_bytes)
        parts = memory.fetch([span for _, span in inputs], is_kept=is_kept)
        for (head, _), part in zip(inputs, parts, strict=True):
            arrays[head.name] = from_bytes(head, part)
    return arrays


def reshape(head: Head, array: Array) -> Array:
    """Returns a flat array in an input's shape.

    Raises:
        InvalidInputError: If the number of elements differs.
    """
    try:
        return array.reshape(head.shape)
    except ValueError as error:
        raise InvalidInputError(f"input {head.name!r} cannot have shape {list(head.shape)}: {error}") from error


def _check_length(head: Head, num_bytes: int) -> None:
    """Refuses a number of bytes that does not match the shape, except for BYTES, whose elements carry their lengths."""
    if head.dtype is DType.BYTES:
        return
    expected = math.prod(head.shape) * ITEM_BYTES[head.dtype]
    if num_bytes != expected:
        raise InvalidInputError(f"input {head.name!r} has {num_bytes} bytes, {head.dtype}{list(head.shape)} has {expected}")
