"""Inputs of inference requests: JSON data, raw bytes behind the JSON, and ranges of client memory, as arrays."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from dyorc.arrays import Array, numpy_dtype
from dyorc.errors import InvalidInputError, TransportError
from dyorc.gateway.client_memory import Span
from dyorc.gateway.request_memory import RequestMemory
from dyorc.tensor import ITEM_BYTES, DType
from dyorc.transport.codec import MAX_RANK, MAX_SIZE, decode_bytes

_PLACE = frozenset({"shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"})

NO_JSON_FORM = frozenset({DType.FP16, DType.BF16})
"""Types that have to come and go as raw bytes."""


class Input(msgspec.Struct):
    """An input, as a request's JSON has it."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: Any = msgspec.UNSET


def read_inputs(inputs: Sequence[Input], rest: memoryview, memory: RequestMemory) -> dict[str, Any]:
    """Each input's array, by its name.

    Args:
        rest: The raw bytes behind the JSON, in the order of `inputs`.

    Raises:
        InvalidInputError: If they are malformed, do not fit each other, or `rest` is not used up.
        DyOrcError: As `RequestMemory.span` and `RequestMemory.fetch`.
    """
    arrays: dict[str, Any] = {}
    shared: list[tuple[Input, DType, Span]] = []
    at = 0
    for tensor in inputs:
        if tensor.name in arrays:
            raise InvalidInputError(f"input {tensor.name!r} was given twice")
        dtype = _checked(tensor)
        span = span_of(tensor.parameters, "input", tensor.name, memory)
        size = tensor.parameters.get("binary_data_size")
        if span is not None:
            _refuse_other_sources(tensor)
            shared.append((tensor, dtype, span))
            arrays[tensor.name] = None  # until all have been looked at
        elif size is None:
            arrays[tensor.name] = _from_json(tensor, dtype)
        else:
            raw = _next_bytes(tensor, size, rest[at:])
            arrays[tensor.name] = _from_bytes(tensor, dtype, raw)
            at += len(raw)
    if at != len(rest):
        raise InvalidInputError(f"the inputs take {at} bytes after the JSON, the body has {len(rest)}")
    if shared:
        arrays |= _fetched(shared, memory)
    return arrays


def span_of(parameters: dict[str, Any], kind: str, name: str, memory: RequestMemory) -> Span | None:
    """The range of client memory that the parameters of an input or output (`kind`) name, if they do.

    Raises:
        InvalidInputError: If they do not name one properly.
        ClientError: As `RequestMemory.span`.
    """
    if _PLACE.isdisjoint(parameters):
        return None
    owner = f"{kind} {name!r}"
    memory.check_allowed()
    if "shared_memory_region" not in parameters:
        raise InvalidInputError(f"{owner} has {min(_PLACE & parameters.keys())}, and no shared_memory_region")
    region = parameters["shared_memory_region"]
    if not isinstance(region, str):
        raise InvalidInputError(f"Unable to parse 'shared_memory_region': {owner} has {region!r}, expected a text")
    if "shared_memory_byte_size" not in parameters:
        raise InvalidInputError(f"{owner} has shared_memory_region, and no shared_memory_byte_size")
    num_bytes = _count_of(parameters["shared_memory_byte_size"], "shared_memory_byte_size", owner)
    return memory.span(region, _count_of(parameters.get("shared_memory_offset", 0), "shared_memory_offset", owner), num_bytes)


def _count_of(value: Any, name: str, owner: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInputError(f"Unable to parse '{name}': {owner} has {value!r}, expected a number of bytes")
    return value


def _checked(tensor: Input) -> DType:
    """The type of an input whose shape is a shape."""
    if len(tensor.shape) > MAX_RANK or any(not 0 <= size <= MAX_SIZE for size in tensor.shape):
        shown = str(tensor.shape)[:80]
        raise InvalidInputError(
            f"input {tensor.name!r} has shape {shown}, expected at most {MAX_RANK} sizes from 0 to {MAX_SIZE}"
        )
    try:
        return DType(tensor.datatype)
    except ValueError:
        raise InvalidInputError(
            f"input {tensor.name!r} has datatype {tensor.datatype!r}, expected one of {[d.value for d in DType]}"
        ) from None


def _refuse_other_sources(tensor: Input) -> None:
    given = ["'data'"] if tensor.data is not msgspec.UNSET else []
    given += ["'binary_data_size'"] if "binary_data_size" in tensor.parameters else []
    if given:
        raise InvalidInputError(
            "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' "
            f"in 'parameters'. But set {' '.join(given)} 'shared_memory_region' (input {tensor.name!r})"
        )


def _next_bytes(tensor: Input, size: Any, rest: memoryview) -> memoryview:
    if tensor.data is not msgspec.UNSET:
        raise InvalidInputError(f"input {tensor.name!r} has both data and binary_data_size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise InvalidInputError(f"input {tensor.name!r} has binary_data_size {size!r}, expected a number of bytes")
    if size > len(rest):
        raise InvalidInputError(f"input {tensor.name!r} announces {size} bytes, {len(rest)} are left in the body")
    return rest[:size]


def _fetched(shared: Sequence[tuple[Input, DType, Span]], memory: RequestMemory) -> dict[str, Array]:
    """Inputs from client memory. BYTES are not read where they lie, so they need not be in the arena."""
    arrays: dict[str, Array] = {}
    for is_kept in (True, False):
        found = [one for one in shared if (one[1] is not DType.BYTES) == is_kept]
        for tensor, dtype, span in found:
            _check_length(tensor, dtype, span.num_bytes)
        parts = memory.fetch([span for _, _, span in found], is_kept=is_kept)
        for (tensor, dtype, _), part in zip(found, parts, strict=True):
            arrays[tensor.name] = _from_bytes(tensor, dtype, part)
    return arrays


def _from_bytes(tensor: Input, dtype: DType, raw: memoryview) -> Array:
    if dtype is DType.BYTES:
        try:
            return decode_bytes(raw, tuple(tensor.shape))
        except TransportError as error:
            raise InvalidInputError(f"input {tensor.name!r}: {error}") from error
    _check_length(tensor, dtype, len(raw))
    return _reshape(tensor, np.frombuffer(raw, numpy_dtype(dtype)))


def _check_length(tensor: Input, dtype: DType, num_bytes: int) -> None:
    """Refuses another number of bytes than the shape has, unless they are BYTES, which say so themselves."""
    if dtype is DType.BYTES:
        return
    expected = math.prod(tensor.shape) * ITEM_BYTES[dtype]
    if num_bytes != expected:
        raise InvalidInputError(f"input {tensor.name!r} has {num_bytes} bytes, {dtype}{tensor.shape} has {expected}")


def _from_json(tensor: Input, dtype: DType) -> Array:
    if tensor.data is msgspec.UNSET:
        raise InvalidInputError(f"input {tensor.name!r} has neither data nor binary_data_size")
    if dtype in NO_JSON_FORM:
        raise InvalidInputError(f"input {tensor.name!r} is {dtype}, which JSON cannot carry; send it as binary data")
    array = _as_typed(tensor.name, tensor.data, dtype)
    if array.size != math.prod(tensor.shape):
        raise InvalidInputError(
            f"input {tensor.name!r} has {array.size} elements, shape {tensor.shape} has {math.prod(tensor.shape)}"
        )
    return _reshape(tensor, array)


def _reshape(tensor: Input, array: Array) -> Array:
    try:
        return array.reshape(tensor.shape)
    except ValueError as error:
        raise InvalidInputError(f"input {tensor.name!r} cannot have shape {tensor.shape}: {error}") from error


_JSON_KINDS = {"b": "booleans", "i": "whole numbers", "f": "numbers", "O": "texts"}


def _as_typed(name: str, data: Any, dtype: DType) -> Array:
    """JSON data, nested or flat, as an array of exactly `dtype`."""
    target = numpy_dtype(dtype)
    kind = "i" if target.kind in "iu" else target.kind
    refusal = InvalidInputError(f"the data of input {name!r} is not an evenly nested list of {_JSON_KINDS[kind]} ({dtype})")
    if not isinstance(data, list):
        raise refusal
    if kind == "O":
        found = np.array(data, dtype=object)
        flat = found.reshape(-1).tolist()
        if not all(isinstance(item, str) for item in flat):
            raise refusal
        array = np.empty(len(flat), dtype=object)
        array[:] = [item.encode() for item in flat]
        return array
    try:
        found = np.array(data)
    except (ValueError, OverflowError):
        raise refusal from None
    if found.size == 0:
        return found.astype(target)
    if kind == "i" and found.dtype.kind in "fO":
        found = _whole_numbers(data)  # NumPy makes floats or objects of numbers that are too large for its first guess
    allowed = {"b": "b", "i": "iuO", "f": "iuf"}[kind]
    if found is None or found.dtype.kind not in allowed:
        raise refusal
    if kind == "i":
        limits = np.iinfo(target)
        if found.min() < limits.min or found.max() > limits.max:
            raise InvalidInputError(f"input {name!r} holds a number outside of {dtype}: {found.min()} to {found.max()}")
    with np.errstate(over="ignore"):
        array = found.astype(target)
    if kind == "f" and not np.isfinite(array).all():  # JSON itself has no infinity
        raise InvalidInputError(f"input {name!r} holds a number outside of {dtype}: {found.min()} to {found.max()}")
    return array


def _whole_numbers(data: list[Any]) -> Array | None:
    """Nested lists of Python integers of any size; None if that is not what they are."""
    try:
        found = np.array(data, dtype=object)
    except ValueError:
        return None
    return found if all(type(item) is int for item in found.reshape(-1).tolist()) else None
