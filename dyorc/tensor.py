"""What a tensor is to everybody who does not look inside it: type, shape, bytes, place.

The engine, the orchestrator and the gateway handle tensors only as `TensorRef`. Nothing here imports NumPy or torch.
"""

from collections.abc import Iterable
from enum import StrEnum
from types import EllipsisType
from typing import Any, TypeAlias

import msgspec

Shape: TypeAlias = tuple[int, ...]
IndexItem: TypeAlias = int | slice | EllipsisType | None
Index: TypeAlias = tuple[IndexItem, ...]


class DType(StrEnum):
    """Element types, by their names in the Open Inference Protocol."""

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


ITEM_BYTES: dict[DType, int] = {
    DType.BOOL: 1, DType.UINT8: 1, DType.INT8: 1,
    DType.UINT16: 2, DType.INT16: 2, DType.FP16: 2, DType.BF16: 2,
    DType.UINT32: 4, DType.INT32: 4, DType.FP32: 4,
    DType.UINT64: 8, DType.INT64: 8, DType.FP64: 8,
}  # fmt: skip
"""Bytes of one element. BYTES is missing: its elements have no fixed size."""

FLOATS = frozenset({DType.FP16, DType.BF16, DType.FP32, DType.FP64})


class TensorRef(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that exists: what it is, and where its bytes are.

    Attributes:
        dtype: Element type.
        shape: Shape after `views` are applied.
        num_bytes: Bytes of the stored tensor (before `views`).
        node: The node that holds the bytes.
        tensor_id: Name of the stored tensor; 0 if it is carried in `data`.
        data: The array itself, for small tensors that ride along. Opaque to the engine.
        views: Indices to apply, in order, when the bytes are gathered.
    """

    dtype: DType
    shape: Shape
    num_bytes: int = 0
    node: str = ""
    tensor_id: int = 0
    data: Any = None
    views: tuple[Index, ...] = ()

    def view(self, index: Index) -> "TensorRef":
        """This tensor seen through one more index. No bytes move.

        Raises:
            IndexError: If the index does not fit the shape.
        """
        return msgspec.structs.replace(self, shape=index_shape(self.shape, index), views=(*self.views, index))


def stored_ids(tensors: Iterable[TensorRef]) -> list[int]:
    """Names of the tensors that are kept somewhere until they are released."""
    return [tensor.tensor_id for tensor in tensors if tensor.tensor_id]


def index_shape(shape: Shape, index: Index) -> Shape:
    """Shape of ``tensor[index]`` by NumPy's rules for ints, slices, ``...`` and ``None``.

    Raises:
        IndexError: If there are too many indices or one is out of range; the text names the dimension and its size.
    """
    num_used = sum(item is not None and item is not Ellipsis for item in index)
    if num_used > len(shape):
        raise IndexError(f"{num_used} indices for a tensor of rank {len(shape)}, shape {list(shape)}")
    if Ellipsis not in index:
        index = (*index, Ellipsis)
    result: list[int] = []
    dim = 0
    for item in index:
        match item:
            case None:
                result.append(1)
            case slice():
                result.append(len(range(*item.indices(shape[dim]))))
                dim += 1
            case int():
                if not -shape[dim] <= item < shape[dim]:
                    raise IndexError(f"index {item} is out of range for dimension {dim} of size {shape[dim]}")
                dim += 1
            case _:
                num_kept = len(shape) - num_used
                result.extend(shape[dim : dim + num_kept])
                dim += num_kept
    return tuple(result)
