"""A tensor as seen by code that does not read it: type, shape, bytes, place.

The engine, the orchestrator and the gateway handle tensors only as `TensorRef`. Nothing here imports NumPy or torch.
"""

from collections.abc import Iterable
from enum import StrEnum
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias

import msgspec

Shape: TypeAlias = tuple[int, ...]
IndexItem: TypeAlias = int | slice | EllipsisType | None
Index: TypeAlias = tuple[IndexItem, ...]


class DType(StrEnum):
    """Element types, by their names in the Open Inference Protocol; and RESIDENT, which no message carries."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"
    RESIDENT = "RESIDENT"
    """A Python object that stays in the process that made it. Its block is its number there; it has no bytes to read."""


TENSOR_TYPES = tuple([dtype for dtype in DType if dtype is not DType.RESIDENT])
"""The element types of tensors, which can be sent."""


ITEM_BYTES: dict[DType, int] = {
    DType.BOOL: 1, DType.UINT8: 1, DType.INT8: 1,
    DType.UINT16: 2, DType.INT16: 2, DType.FP16: 2, DType.BF16: 2,
    DType.UINT32: 4, DType.INT32: 4, DType.FP32: 4,
    DType.UINT64: 8, DType.INT64: 8, DType.FP64: 8,
}  # fmt: skip
"""Bytes of one element. BYTES is missing: its elements have no fixed size."""

FLOATS = frozenset({DType.FP16, DType.BF16, DType.FP32, DType.FP64})


class TensorRef(msgspec.Struct, frozen=True, kw_only=True):
    """An existing tensor: its type and shape, and where its bytes are.

    Attributes:
        dtype: Element type.
        shape: Shape after `views` are applied.
        num_bytes: Bytes of the stored tensor (before `views`).
        node: The node that holds the bytes.
        holder: The process that holds them.
        block: Number of the block of that process's arena that holds them; 0 if they are in `data`.
        offset: Where in that arena they begin.
        data: The array itself, for small tensors that travel inline. Opaque to the engine. For a stored tensor from another
            process: its place in memory, with views resolved.
        views: Indices to apply, in order, when the bytes are gathered.
        base: Shape before `views` are applied; None if there are none.
        device: Where its holder keeps it on a device, opaque to the engine; the block gets its bytes once they are needed on the
            host. None: they are there.
    """

    dtype: DType
    shape: Shape
    num_bytes: int = 0
    node: str = ""
    holder: str = ""
    block: int = 0
    offset: int = 0
    data: Any = None
    views: tuple[Index, ...] = ()
    base: Shape | None = None
    device: Any = None

    def view(self, index: Index) -> "TensorRef":
        """Returns this tensor seen through one more index. No bytes move.

        Raises:
            IndexError: If the index does not fit the shape.
        """
        old = self.shape
        if len(index) == 1 and type(row := index[0]) is int and old and -old[0] <= row < old[0]:  # one of many rows
            shape = old[1:]
        else:
            shape = index_shape(old, index)
        base = self.shape if self.base is None else self.base
        return msgspec.structs.replace(self, shape=shape, views=(*self.views, index), base=base)


ON_DEVICE = "on-device"
"""The holder of what lies on the devices of the orchestrator's own process (`DeviceTensors`)."""

BlockId: TypeAlias = tuple[str, int]
"""A block of memory: its holder, and its number there, which is never reused."""


def blocks_of(tensors: Iterable[TensorRef]) -> list[BlockId]:
    """Returns the blocks of `tensors`, one per tensor that is not inline."""
    blocks: list[BlockId] = []
    for tensor in tensors:  # a comprehension would be another call, and most tensors of streams are inline
        if tensor.block:
            blocks.append((tensor.holder, tensor.block))
    return blocks


def is_resident(tensor: TensorRef) -> bool:
    """Returns whether it is an object that stays in its process, and no tensor."""
    return tensor.dtype is DType.RESIDENT


class Layout(NamedTuple):
    """Where the elements of a strided tensor lie, counted in elements from the start of the tensor it is a view of."""

    start: int
    shape: Shape
    strides: tuple[int, ...]

    @classmethod
    def contiguous(cls, shape: Shape) -> "Layout":
        """Returns the layout of a tensor in C order."""
        strides = [1] * len(shape)
        for dim in range(len(shape) - 1, 0, -1):
            strides[dim - 1] = strides[dim] * shape[dim]
        return cls(0, shape, tuple(strides))

    def at(self, index: Index) -> "Layout":
        """Returns the layout of ``tensor[index]`` by NumPy's rules for ints, slices, ``...`` and ``None``.

        Raises:
            IndexError: See `index_shape`.
        """
        shape, strides = list[int](), list[int]()
        start, dim = self.start, 0
        for item in expanded_index(index, self.shape):
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            size, stride = self.shape[dim], self.strides[dim]
            dim += 1
            if isinstance(item, slice):
                kept = range(*item.indices(size))
                start += (kept.start if kept else 0) * stride
                shape.append(len(kept))
                strides.append(kept.step * stride)
            else:
                start += (item + size if item < 0 else item) * stride
        return Layout(start, tuple(shape), tuple(strides))

    def bounds(self) -> tuple[int, int]:
        """Returns the first element it touches and the one after the last; both `start` if it has none."""
        if 0 in self.shape:
            return self.start, self.start
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        return self.start + sum(min(0, r) for r in reach), self.start + sum(max(0, r) for r in reach) + 1


def layout_of(shape: Shape, views: Iterable[Index]) -> Layout:
    """Returns the layout of a contiguous tensor of `shape` seen through indices, in order."""
    layout = Layout.contiguous(shape)
    for index in views:
        layout = layout.at(index)
    return layout


def index_shape(shape: Shape, index: Index) -> Shape:
    """Returns the shape of ``tensor[index]`` by NumPy's rules for ints, slices, ``...`` and ``None``.

    Raises:
        IndexError: If there are too many indices or one is out of range; the text names the dimension and its size.
    """
    result: list[int] = []
    dim = 0
    for item in index if _is_plain(index, shape) else expanded_index(index, shape):
        if item is None:
            result.append(1)
            continue
        if isinstance(item, slice):
            result.append(len(range(*item.indices(shape[dim]))))
        dim += 1
    return (*result, *shape[dim:])


def _is_plain(index: Index, shape: Shape) -> bool:
    """Whether an index has only slices, as nearly all have, and at most one for each dimension: nothing is to be expanded."""
    for item in index:
        if type(item) is not slice:
            return False
    return len(index) <= len(shape)


def expanded_index(index: Index, shape: Shape) -> list[int | slice | None]:
    """Expands the index to one item per dimension, besides the new ones.

    Raises:
        IndexError: See `index_shape`.
    """
    num_used = sum(item is not None and item is not Ellipsis for item in index)
    if num_used > len(shape):
        raise IndexError(f"{num_used} indices for a tensor of rank {len(shape)}, shape {list(shape)}")
    if Ellipsis not in index:
        index = (*index, Ellipsis)
    result: list[int | slice | None] = []
    dim = 0
    for item in index:
        if item is Ellipsis:
            result.extend([slice(None)] * (len(shape) - num_used))
            dim += len(shape) - num_used
            continue
        if isinstance(item, int) and not -shape[dim] <= item < shape[dim]:
            raise IndexError(f"index {item} is out of range for dimension {dim} of size {shape[dim]}")
        result.append(item)  # pyright: ignore[reportArgumentType]
        dim += item is not None
    return result
