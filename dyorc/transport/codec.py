"""Tensors as raw frames. No pickle: a header says type and shapes, the frame holds little-endian C-order bytes.

A *column* is one argument or output of a batch: the arrays of its calls, in order. It is either stacked (one array, whose
first dimension counts the calls, one frame) or a list of arrays, which may differ in shape. Lengths are checked before any
frame is read.
"""

import math
import struct
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from dyorc.arrays import Array, dtype_of, numpy_dtype
from dyorc.errors import TransportError
from dyorc.tensor import ITEM_BYTES, DType, Shape

Frame: TypeAlias = bytes | bytearray | memoryview
Rows: TypeAlias = Array | Sequence[Array]
"""A column in memory."""

_JOIN_LIMIT_BYTES = 64 * 1024
"""Rows up to this size are joined into one frame: a copy costs less than a frame. Larger ones are sent from where they lie."""

_MAX_STACKED = 2**20
"""Calls in a frame off the wire; a number beyond would be an endless loop over rows of no bytes."""

MAX_RANK = 64
MAX_SIZE = 2**48
"""Bounds of shapes off the wire: NumPy's most dimensions, and far more elements than a machine holds."""


class Column(msgspec.Struct, frozen=True, array_like=True):
    """Header of a column.

    Attributes:
        shapes: One shape for each frame.
        num_stacked: Calls in the only frame, whose shape is then that of one call; 0 if each call has its own frame.
    """

    dtype: DType
    shapes: tuple[Shape, ...]
    num_stacked: int = 0


def encode_column(rows: Rows) -> tuple[Column, list[Frame]]:
    """A column's header and frames. Strided arrays are made contiguous; others are not copied if they are large."""
    if isinstance(rows, np.ndarray):
        dtype = dtype_of(rows)
        if dtype is not DType.BYTES:
            return Column(dtype, (rows.shape[1:],), len(rows)), [_raw(rows)]
        rows = [rows[at, ...] for at in range(len(rows))]
    first = rows[0]
    dtype = dtype_of(first)
    if any(row.dtype != first.dtype for row in rows):
        raise TransportError(f"a column mixes {first.dtype} with other types")
    if dtype is DType.BYTES:
        return Column(dtype, tuple(row.shape for row in rows)), [encode_bytes(row) for row in rows]
    if len(rows) == 1:
        return Column(dtype, (first.shape,), 1), [_raw(first)]
    if first.nbytes <= _JOIN_LIMIT_BYTES and all(row.shape == first.shape for row in rows):
        return Column(dtype, (first.shape,), len(rows)), [b"".join([_raw(row) for row in rows])]
    return Column(dtype, tuple(row.shape for row in rows)), [_raw(row) for row in rows]


def decode_column(column: Column, frames: Sequence[Frame]) -> Rows:
    """A column's arrays. They are views of the frames.

    Raises:
        TransportError: If a frame's length does not fit its shape.
    """
    if len(frames) != len(column.shapes):
        raise TransportError(f"a column of {len(column.shapes)} frames came as {len(frames)}")
    if not 0 <= column.num_stacked <= _MAX_STACKED or (column.num_stacked and len(frames) != 1):
        raise TransportError(f"a column stacks {column.num_stacked} calls in {len(frames)} frames, expected them in one")
    stack = (column.num_stacked,) if column.num_stacked else ()
    shapes = [_checked_shape((*stack, *shape)) for shape in column.shapes]
    if column.dtype is DType.BYTES:
        return [decode_bytes(frame, shape) for frame, shape in zip(frames, shapes, strict=True)]
    arrays: list[Array] = []
    for frame, shape in zip(frames, shapes, strict=True):
        _check_length(frame, column.dtype, shape)
        try:
            arrays.append(np.frombuffer(frame, numpy_dtype(column.dtype)).reshape(shape))
        except ValueError as error:
            raise TransportError(f"a frame cannot have the shape {list(shape)}: {error}") from error
    return arrays[0] if column.num_stacked else arrays


def _checked_shape(shape: Shape) -> Shape:
    """A shape off the wire that NumPy can have."""
    if len(shape) > MAX_RANK or any(not 0 <= size <= MAX_SIZE for size in shape):
        raise TransportError(f"a shape of {len(shape)} sizes is not one of at most {MAX_RANK} sizes from 0 to {MAX_SIZE}")
    return shape


def _raw(array: Array) -> Frame:
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    if array.size == 0:
        return b""
    return array.reshape(-1).view(np.uint8).data


def _check_length(frame: Frame, dtype: DType, shape: Shape) -> None:
    expected = math.prod(shape) * ITEM_BYTES[dtype]
    length = frame.nbytes if isinstance(frame, memoryview) else len(frame)
    if length != expected:
        raise TransportError(f"a frame of {dtype}{list(shape)} has {length} bytes, expected {expected}")


def encode_bytes(array: Array) -> bytes:
    """BYTES elements as the Open Inference Protocol writes them: a 4-byte little-endian length, then the bytes."""
    parts: list[bytes] = []
    for item in array.reshape(-1).tolist():
        if not isinstance(item, bytes):
            raise TransportError(f"an element of a BYTES tensor is {type(item).__name__}, expected bytes")
        parts += (struct.pack("<I", len(item)), item)
    return b"".join(parts)


def decode_bytes(frame: Frame, shape: Shape) -> Array:
    """The inverse of `encode_bytes`.

    Raises:
        TransportError: If the lengths run past the end, or the number of elements is not the shape's.
    """
    view = memoryview(frame)
    num_expected, at = math.prod(shape), 0
    items: list[bytes] = []
    while at < len(view):
        if at + 4 > len(view):
            raise TransportError(f"element {len(items)} has {len(view) - at} bytes left for its 4-byte length")
        (length,) = struct.unpack_from("<I", view, at)
        at += 4
        if length > len(view) - at:
            raise TransportError(f"element {len(items)} says it has {length} bytes, {len(view) - at} are left")
        items.append(bytes(view[at : at + length]))
        at += length
    if len(items) != num_expected:
        raise TransportError(f"{len(items)} elements came, shape {list(shape)} has {num_expected}")
    array = np.empty(num_expected, dtype=object)
    array[:] = items
    return array.reshape(shape)
