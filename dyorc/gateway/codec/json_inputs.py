"""Inputs in the body of an HTTP request: JSON data, raw bytes behind the JSON, and ranges of client memory, as arrays."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from dyorc.core.arrays import Array, are_numbers, has_bools, numpy_dtype
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.gateway.request_inputs import NO_JSON_FORM, Head, SharedInput, fetch_inputs, from_bytes, read_head, reshape, span_of
from dyorc.gateway.request_memory import RequestMemory
from dyorc.protocol.parameter_names import BINARY_DATA_SIZE
from dyorc.protocol.raw import MAX_RANK


class Input(msgspec.Struct, forbid_unknown_fields=True):
    """An input, as the request's JSON describes it."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: Any = msgspec.UNSET


def read_inputs(inputs: Sequence[Input], rest: memoryview, memory: RequestMemory) -> dict[str, Array]:
    """Returns each input's array, by name.

    Args:
        rest: The raw bytes behind the JSON, in the order of `inputs`.

    Raises:
        InvalidInputError: If they are malformed or contradict each other, or if a part of `rest` is left over.
        DyOrcError: See `RequestMemory.span` and `RequestMemory.fetch`.
    """
    arrays: dict[str, Any] = {}
    shared: list[SharedInput] = []
    at = 0
    for tensor in inputs:
        if tensor.name in arrays:
            raise InvalidInputError(f"input {tensor.name!r} was given twice")
        head = read_head(tensor.name, tensor.datatype, tensor.shape)
        span = span_of(tensor.parameters, "input", tensor.name, memory)
        size = tensor.parameters.get(BINARY_DATA_SIZE)
        if span is not None:
            _refuse_other_sources(tensor)
            shared.append(SharedInput(head, span))
            arrays[tensor.name] = None  # until all have been read
        elif size is None:
            arrays[tensor.name] = _from_json(tensor, head)
        else:
            raw = _next_bytes(tensor, size, rest[at:])
            arrays[tensor.name] = from_bytes(head, raw)
            at += len(raw)
    if at != len(rest):
        raise InvalidInputError(f"the inputs take {at} bytes after the JSON, the body has {len(rest)}")
    if shared:
        arrays |= fetch_inputs(shared, memory)
    return arrays


def _refuse_other_sources(tensor: Input) -> None:
    sources = ["'data'"] if tensor.data is not msgspec.UNSET else []
    sources += [f"'{BINARY_DATA_SIZE}'"] if BINARY_DATA_SIZE in tensor.parameters else []
    if sources:
        raise InvalidInputError(
            "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' "
            f"in 'parameters'. But set {' '.join(sources)} 'shared_memory_region' (input {tensor.name!r})"
        )


def _next_bytes(tensor: Input, size: Any, rest: memoryview) -> memoryview:
    if tensor.data is not msgspec.UNSET:
        raise InvalidInputError(f"input {tensor.name!r} has both data and binary_data_size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise InvalidInputError(f"input {tensor.name!r} has binary_data_size {size!r}, expected a number of bytes")
    if size > len(rest):
        raise InvalidInputError(f"input {tensor.name!r} announces {size} bytes, {len(rest)} are left in the body")
    return rest[:size]


def _from_json(tensor: Input, head: Head) -> Array:
    if tensor.data is msgspec.UNSET:
        raise InvalidInputError(f"input {tensor.name!r} has neither data nor binary_data_size")
    if head.dtype in NO_JSON_FORM:
        raise InvalidInputError(f"input {tensor.name!r} is {head.dtype}, which JSON cannot carry; send it as binary data")
    array = _as_typed(tensor.name, tensor.data, head.dtype)
    if array.size != math.prod(tensor.shape):
        raise InvalidInputError(
            f"input {tensor.name!r} has {array.size} elements, shape {tensor.shape} has {math.prod(tensor.shape)}"
        )
    return reshape(head, array)


_JSON_KINDS = {"b": "booleans", "i": "whole numbers", "f": "numbers", "O": "texts"}


def _as_typed(name: str, data: Any, dtype: DType) -> Array:
    """Converts JSON data, nested or flat, to an array of exactly `dtype`."""
    target = numpy_dtype(dtype)
    kind = "i" if target.kind in "iu" else target.kind
    refusal = InvalidInputError(f"the data of input {name!r} is not an evenly nested list of {_JSON_KINDS[kind]} ({dtype})")
    if not isinstance(data, list):
        raise refusal
    if kind == "O":
        values = np.array(data, dtype=object)
        flat = values.reshape(-1).tolist()
        if not all(isinstance(item, str) for item in flat):
            raise refusal
        array = np.empty(len(flat), dtype=object)
        array[:] = [item.encode() for item in flat]
        return array
    if _has_text(data):
        raise refusal
    try:
        values = np.array(data)
    except (ValueError, OverflowError):
        raise refusal from None
    if values.size == 0:
        return values.astype(target)
    if kind == "i" and values.dtype.kind in "fO":
        values = _whole_numbers(data)  # if a number is too large for NumPy's first guess, the result has floats or objects
    try:
        # Integers beyond 64 bits make objects: JavaScript writes 1e20 as 100000000000000000000.
        if kind == "f" and values is not None and are_numbers(values, with_floats=True):
            values = values.astype(np.float64)
    except OverflowError:
        raise InvalidInputError(f"input {name!r} holds a number outside the range of {dtype}") from None
    allowed = {"b": "b", "i": "iuO", "f": "iuf"}[kind]
    if values is None or values.dtype.kind not in allowed or (kind != "b" and has_bools(data, values)):
        raise refusal
    if kind == "i":
        limits = np.iinfo(target)
        if values.min() < limits.min or values.max() > limits.max:
            raise InvalidInputError(
                f"input {name!r} holds a number outside the range of {dtype}: {values.min()} to {values.max()}"
            )
    with np.errstate(over="ignore"):
        array = values.astype(target)
    if kind == "f" and not np.isfinite(array).all():  # JSON has no infinity, so an infinite value was too large
        raise InvalidInputError(f"input {name!r} holds a number outside the range of {dtype}: {values.min()} to {values.max()}")
    return array


def _has_text(data: list[Any], depth: int = MAX_RANK) -> bool:
    """Returns whether there is a text among numbers: NumPy would make every element as long as the longest, so a short request
    could take all memory. Lists nested deeper than an array has dimensions are not looked into; NumPy leaves them as they are.
    """
    with suppress(TypeError, OverflowError):  # a sum is the quickest way to see that all are numbers
        sum(data)
        return False
    kinds = set(map(type, data))
    return str in kinds or (
        list in kinds and depth > 1 and any(_has_text(part, depth - 1) for part in data if type(part) is list)
    )


def _whole_numbers(data: list[Any]) -> Array | None:
    """Flattens nested lists of Python integers of any size; None if that is not what they are."""
    try:
        numbers = np.array(data, dtype=object)
    except ValueError:
        return None
    return numbers if are_numbers(numbers, with_floats=False) else None
