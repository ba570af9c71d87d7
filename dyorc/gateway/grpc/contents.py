# pyright: basic, reportAttributeAccessIssue=false
# Generated messages have no types.
"""Inputs as lists of numbers (`InferTensorContents`), for clients without raw bytes; and the protocol's parameters."""

import math
import time
from typing import Any

import numpy as np

from dyorc.core.arrays import Array, numpy_dtype
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.gateway.copies import PAUSE_S, PIECE_ITEMS
from dyorc.gateway.inputs import NO_JSON_FORM, Head, reshape

_FIELDS = {
    DType.BOOL: "bool_contents",
    DType.INT8: "int_contents", DType.INT16: "int_contents", DType.INT32: "int_contents", DType.INT64: "int64_contents",
    DType.UINT8: "uint_contents", DType.UINT16: "uint_contents", DType.UINT32: "uint_contents", DType.UINT64: "uint64_contents",
    DType.FP32: "fp32_contents", DType.FP64: "fp64_contents",
    DType.BYTES: "bytes_contents",
}  # fmt: skip

_NARROW = {
    DType.INT8: np.dtype(np.int32), DType.INT16: np.dtype(np.int32),
    DType.UINT8: np.dtype(np.uint32), DType.UINT16: np.dtype(np.uint32),
}  # fmt: skip
"""Types whose field in the message has a wider type."""

_ITEM_WORK_BYTES = 64
"""An item that is converted takes about as long as this many bytes that are copied."""

_MAX_PARAMETERS = 1000


def from_contents(head: Head, contents: Any) -> Array:
    """Returns an input's array from its `contents`.

    Raises:
        InvalidInputError: If they do not fit its type and shape.
    """
    if head.dtype in NO_JSON_FORM:
        raise InvalidInputError(f"input {head.name!r} is {head.dtype}, which 'contents' cannot carry; send raw_input_contents")
    field = _FIELDS[head.dtype]
    if others := [descriptor.name for descriptor, _ in contents.ListFields() if descriptor.name != field]:
        raise InvalidInputError(f"input {head.name!r} has {others[0]}, expected {field} for {head.dtype}")
    items = getattr(contents, field)
    num_expected = math.prod(head.shape)
    if len(items) != num_expected:
        raise InvalidInputError(
            f"input {head.name!r} has {len(items)} elements in {field}, shape {list(head.shape)} has {num_expected}"
        )
    if head.dtype is DType.BYTES:
        return reshape(head, _filled(items, np.dtype(object)))
    return reshape(head, _numbers(head, items))


def num_bytes_of(head: Head, contents: Any) -> int:
    """Estimates how much work an input's contents are, in bytes of an array: each item is an object of Python's in between."""
    field = _FIELDS.get(head.dtype)
    if contents is None or field is None:
        return 0
    return contents.ByteSize() if head.dtype is DType.BYTES else _ITEM_WORK_BYTES * len(getattr(contents, field))


def _filled(items: Any, dtype: np.dtype[Any]) -> Array:
    """Returns items as an array. Each piece is taken at once, without other threads, so there is a pause after it."""
    found = np.empty(len(items), dtype)
    for at in range(0, len(items), PIECE_ITEMS):
        if at:
            time.sleep(PAUSE_S)
        found[at : at + PIECE_ITEMS] = items[at : at + PIECE_ITEMS]
    return found


def _numbers(head: Head, items: Any) -> Array:
    target = numpy_dtype(head.dtype)
    found = _filled(items, _NARROW.get(head.dtype, target))
    if found.dtype == target or not found.size:
        return found.astype(target, copy=False)
    limits = np.iinfo(target)
    if found.min() < limits.min or found.max() > limits.max:
        raise InvalidInputError(
            f"input {head.name!r} holds a number outside the range of {head.dtype}: {found.min()} to {found.max()}"
        )
    return found.astype(target)


def values_of(parameters: Any) -> dict[str, Any]:
    """Returns parameters as plain values, by name.

    Raises:
        InvalidInputError: If there are too many, or one has no value.
    """
    if len(parameters) > _MAX_PARAMETERS:
        raise InvalidInputError(f"there are {len(parameters)} parameters, expected at most {_MAX_PARAMETERS}")
    values: dict[str, Any] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is None:
            raise InvalidInputError(f"parameter {name!r} has no value")
        values[name] = getattr(parameter, kind)
    return values
