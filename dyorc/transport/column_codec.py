"""Tensors as raw bytes, without pickle: a header states type and shapes, the bytes are little-endian, in C order.

A *column* is one argument or output of a batch: the arrays of its calls, in order. It is either stacked (one array, whose
first dimension counts the calls) or a list of arrays, which may differ in shape. Small tensors travel as frames
(`Column`); large ones stay in the arena of the process that made them, and the header says where (`StoredColumn`). Lengths
are checked before anything is read.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.lib.stride_tricks import as_strided

from dyorc.core.arrays import Array, dtype_of, numpy_dtype
from dyorc.core.tensor import ITEM_BYTES, DType, Layout, Shape
from dyorc.errors import TransportError
from dyorc.protocol.raw import MAX_RANK, MAX_SIZE, decode_bytes, encode_bytes

Frame: TypeAlias = bytes | bytearray | memoryview
Rows: TypeAlias = Array | Sequence[Array]
"""A column in memory."""

_JOIN_LIMIT_BYTES = 64 * 1024
"""Rows up to this size are joined into one frame: a copy costs less than a frame. Larger ones are sent from where they lie."""

MAX_ROWS = 2**16
"""Limit of the calls in a received column: rows of no bytes could otherwise be endless."""


class Column(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Header of a column, or a part of one, whose bytes are frames of the same message.

    Attributes:
        shapes: One shape for each frame.
        num_stacked: Calls in the only frame, whose shape is then that of one call; 0 if each call has its own frame.
    """

    dtype: DType
    shapes: tuple[Shape, ...]
    num_stacked: int = 0


class DevicePlace(msgspec.Struct, frozen=True, array_like=True):
    """Where calls of a column lie on a device. Their block in the arena has room for them, and gets their bytes when somebody
    asks for them (`host_copies`).

    Attributes:
        device: The device's own name, the same in all processes.
        handle: What opens the memory there, in other processes.
        base: Where in that memory the part begins that its owner has allocated for results, in bytes.
        shift: What is added to an offset in the arena to get that in this part.
        flag: Offset in the arena, in the same block, of a byte that is 1 once the block has the bytes.
    """

    device: str
    handle: bytes
    base: int
    shift: int
    flag: int


class StoredRows(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Calls of a column that follow each other in a block of an arena.

    Attributes:
        holder: Whose arena, as an index into the message's list of holders.
        block: Number of the block.
        offset: Where the first call's tensor begins in the arena's file.
        num_bytes: Length of each call's tensor as it is stored.
        shape: Shape of each call's tensor as the program sees it.
        num_rows: How many calls.
        num_items: Elements of each call's tensor as it is stored.
        start: The first element of what the program sees, which is a view of the tensor if there are `strides`.
        strides: Distances in elements, one per dimension; None for the whole tensor, in C order.
        device: Where they lie on a device; None: in the arena alone.
    """

    holder: int
    block: int
    offset: int
    num_bytes: int
    shape: Shape
    num_rows: int
    num_items: int
    start: int = 0
    strides: tuple[int, ...] | None = None
    device: DevicePlace | None = None


class StoredColumn(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Header of a column that is at least partly in arenas. Frames follow for the other parts."""

    dtype: DType
    parts: tuple[Column | StoredRows, ...]


ColumnHeader: TypeAlias = Column | StoredColumn


def num_frames(header: ColumnHeader) -> int:
    """Returns how many frames of the message belong to a column."""
    if isinstance(header, Column):
        return len(header.shapes)
    return sum(len(part.shapes) for part in header.parts if isinstance(part, Column))


def each_row(rows: Rows) -> Sequence[Array]:
    """Returns the arrays of a column one by one; iterating over a stack of rank-0 tensors would yield numbers."""
    return [rows[at, ...] for at in range(len(rows))] if isinstance(rows, np.ndarray) else rows


def encode_column(rows: Rows) -> tuple[Column, list[Frame]]:
    """Returns a column's header and frames. Strided arrays are made contiguous; others are not copied if they are large."""
    if isinstance(rows, np.ndarray):
        dtype = dtype_of(rows)
        if dtype is not DType.BYTES:
            return Column(dtype, (rows.shape[1:],), len(rows)), [_raw(rows)]
        rows = each_row(rows)
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
    """Returns a column's arrays, as views of the frames.

    Raises:
        TransportError: If a frame's length does not fit its shape.
    """
    if len(frames) != len(column.shapes):
        raise TransportError(f"a column of {len(column.shapes)} frames came as {len(frames)}")
    if not 0 <= column.num_stacked <= MAX_ROWS or (column.num_stacked and len(frames) != 1):
        raise TransportError(f"a column stacks {column.num_stacked} calls in {len(frames)} frames, expected them in one")
    stack = (column.num_stacked,) if column.num_stacked else ()
    if stack and column.dtype is not DType.BYTES:
        return _decode_frame(frames[0], column.dtype, (*stack, *column.shapes[0]))
    shapes = [_checked_shape((*stack, *shape)) for shape in column.shapes]
    if column.dtype is DType.BYTES:
        if stack:
            raise TransportError("a column of BYTES came stacked, expected a frame for each call")
        return [decode_bytes(frame, shape) for frame, shape in zip(frames, shapes, strict=True)]
    return [_decode_frame(frame, column.dtype, shape) for frame, shape in zip(frames, shapes, strict=True)]


def _decode_frame(frame: Frame, dtype: DType, shape: Shape) -> Array:
    """Returns a frame as an array of this shape, once both are checked."""
    _check_length(frame, dtype, _checked_shape(shape))
    return _reshaped(np.frombuffer(frame, numpy_dtype(dtype)), shape)


def _checked_shape(shape: Shape) -> Shape:
    """Returns a shape off the wire that NumPy can represent."""
    if len(shape) > MAX_RANK or (shape and not (min(shape) >= 0 and max(shape) <= MAX_SIZE)):
        raise TransportError(f"a shape of {len(shape)} sizes is not one of at most {MAX_RANK} sizes from 0 to {MAX_SIZE}")
    return shape


def _reshaped(flat: Array, shape: Shape) -> Array:
    """Reshapes elements; NumPy refuses some empty shapes, such as ``(2**48, 2**48, 0)``."""
    try:
        return flat.reshape(shape)
    except ValueError as error:
        raise TransportError(f"{len(flat)} elements cannot have the shape {list(shape)}: {error}") from error


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


def check_stored(dtype: DType, part: StoredRows) -> None:
    """Checks a header of calls in an arena, before anything is read.

    Raises:
        TransportError: If it contradicts itself.
    """
    num_rows, num_bytes, num_items = part.num_rows, part.num_bytes, part.num_items
    if not 1 <= num_rows <= MAX_ROWS or (num_rows > 1 and (part.strides is not None or dtype is DType.BYTES)):
        raise TransportError(f"{num_rows} calls of {dtype} are in one piece, expected at least one, and one for a view or BYTES")
    if not (0 <= num_items <= MAX_SIZE and 0 <= num_bytes <= MAX_SIZE and 0 <= part.offset <= MAX_SIZE):
        raise TransportError(
            f"a stored tensor has {num_items} elements in {num_bytes} bytes from {part.offset}, expected 0 to {MAX_SIZE}"
        )
    if dtype is not DType.BYTES and num_items * ITEM_BYTES[dtype] != num_bytes:
        raise TransportError(f"{num_items} elements of {dtype} have {num_bytes} bytes, expected {num_items * ITEM_BYTES[dtype]}")
    shape = _checked_shape(part.shape)
    num_seen = math.prod(shape)
    if num_seen > num_items or (part.strides is None and num_seen != num_items):  # no view shows an element twice
        raise TransportError(f"{num_items} elements cannot have the shape {list(shape)}")


def decode_stored(dtype: DType, part: StoredRows, raw: memoryview) -> Rows:
    """Returns the arrays of calls from bytes of an arena, once their header is checked. Views of `raw`, except for BYTES.

    Raises:
        TransportError: If the length of `raw` does not match the header, or a view reaches beyond it.
    """
    if len(raw) != part.num_rows * part.num_bytes:
        raise TransportError(f"{part.num_rows} calls of {part.num_bytes} bytes each came as {len(raw)} bytes")
    if dtype is DType.BYTES:
        flat = decode_bytes(raw, (part.num_items,))
    else:
        flat = np.frombuffer(raw, numpy_dtype(dtype))
    if part.strides is not None:
        return [_strided(flat, Layout(part.start, part.shape, part.strides))]
    stacked = _reshaped(flat, (part.num_rows, *part.shape))
    return [stacked[0, ...]] if dtype is DType.BYTES else stacked


def _strided(flat: Array, layout: Layout) -> Array:
    """Returns a view of a stored tensor, checked to stay within it."""
    if len(layout.strides) != len(layout.shape) or any(abs(stride) > MAX_SIZE for stride in layout.strides):
        raise TransportError(f"a view of {len(layout.shape)} dimensions has the strides {list(layout.strides)[:64]}")
    if 0 in layout.shape:
        return _reshaped(flat[:0], layout.shape)  # it touches no element, wherever it begins
    first, end = layout.bounds()
    if not 0 <= first <= end <= len(flat):
        raise TransportError(f"a view reaches from element {first} to {end} of a tensor of {len(flat)}")
    strides = [stride * flat.itemsize for stride in layout.strides]
    return as_strided(flat[layout.start :], layout.shape, strides)
