"""Turns references to stored tensors into what messages say of them, and back."""

import math
from collections.abc import Sequence

import msgspec

from dyorc.core.tensor import DType, TensorRef, layout_of
from dyorc.errors import TransportError
from dyorc.transport.column_codec import Column, StoredColumn, StoredRows, check_stored
from dyorc.transport.tiers import TensorHolder


def follows(last: StoredRows, holder: int, tensor: TensorRef) -> bool:
    """Returns whether a tensor lies right behind those of a piece and has the same layout."""
    return (
        last.strides is None
        and not tensor.views
        and (last.holder, last.block) == (holder, tensor.block)
        and (last.shape, last.num_bytes) == (tensor.shape, tensor.num_bytes)
        and last.offset + last.num_rows * last.num_bytes == tensor.offset
        and tensor.dtype is not DType.BYTES
    )


def stored_rows(tensor: TensorRef, holder: int) -> StoredRows:
    """Returns where a stored tensor is."""
    if tensor.data is not None:
        return msgspec.structs.replace(tensor.data, holder=holder)
    stored_shape = tensor.shape if tensor.base is None else tensor.base
    num_items = math.prod(stored_shape)
    if not tensor.views:
        return StoredRows(holder, tensor.block, tensor.offset, tensor.num_bytes, tensor.shape, 1, num_items, device=tensor.device)
    layout = layout_of(stored_shape, tensor.views)
    return StoredRows(
        holder, tensor.block, tensor.offset, tensor.num_bytes, layout.shape, 1, num_items, layout.start, layout.strides,
        tensor.device,
    )  # fmt: skip


def stored_ref(header: StoredColumn, part: Column | StoredRows, holders: Sequence[TensorHolder]) -> TensorRef:
    """Returns a reference to a tensor that lies where its header says; views of it are resolved there."""
    if not isinstance(part, StoredRows) or part.block <= 0 or not 0 <= part.holder < len(holders):
        raise TransportError("a tensor that is stored lies nowhere")
    check_stored(header.dtype, part)
    holder = holders[part.holder]
    return TensorRef(
        dtype=header.dtype, shape=part.shape, num_bytes=part.num_bytes, node=holder.node, holder=holder.holder_id,
        block=part.block, offset=part.offset, data=part, device=part.device,
    )  # fmt: skip
