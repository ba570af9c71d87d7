"""Columns of a batch that lie on a device: one tensor for all calls, or one for each call."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from dyorc.core.tensor import BlockId, DType, Index, Shape, expanded_index
from dyorc.devices.accelerator import Accelerator
from dyorc.errors import InvalidInputError
from dyorc.transport.column_codec import Rows

_DTYPES = {
    "torch.bool": DType.BOOL,
    "torch.uint8": DType.UINT8,
    "torch.uint16": DType.UINT16,
    "torch.uint32": DType.UINT32,
    "torch.uint64": DType.UINT64,
    "torch.int8": DType.INT8,
    "torch.int16": DType.INT16,
    "torch.int32": DType.INT32,
    "torch.int64": DType.INT64,
    "torch.float16": DType.FP16,
    "torch.bfloat16": DType.BF16,
    "torch.float32": DType.FP32,
    "torch.float64": DType.FP64,
}


def dtype_of_tensor(tensor: Any, label: str) -> DType:
    """Returns the protocol's type of a torch tensor.

    Raises:
        InvalidInputError: If the protocol has no such type; names `label`.
    """
    dtype = _DTYPES.get(str(tensor.dtype))
    if dtype is None:
        raise InvalidInputError(f"{label}: tensors of {tensor.dtype} cannot be sent; expected one of {sorted(_DTYPES)}")
    return dtype


def torch_dtype(dtype: DType) -> Any:
    """Returns torch's type of tensors of a type of the protocol."""
    names = {value: name for name, value in _DTYPES.items()}
    return getattr(importlib.import_module("torch"), names[dtype].removeprefix("torch."))


def version_of(tensor: Any) -> int | None:
    """Returns how often a tensor's memory was written to in place; None if torch does not count it, as in inference mode."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return None


@dataclass(frozen=True, slots=True)
class LentTensor:
    """A tensor that others read, too: its program must not write to it.

    Attributes:
        version: What `version_of` said when its program returned it.
    """

    tensor: Any
    version: int | None
    block: BlockId

    @property
    def is_changed(self) -> bool:
        """Whether it was written to."""
        return self.version is not None and version_of(self.tensor) != self.version


class DeviceRows(Sequence[Any]):
    """The tensors of a batch's calls, in order.

    Args:
        accelerator: Where they lie, or most of them.
        rows: One tensor, whose first dimension counts the calls; or a tensor for each call, or an array of the host that is still
            to be copied.
        lent: Where they come from, if others read them, too.
    """

    def __init__(self, accelerator: Accelerator, rows: Any, lent: Sequence[LentTensor] = ()) -> None:
        self.accelerator = accelerator
        self.rows = rows
        self.lent = lent

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> "DeviceRows": ...
    def __getitem__(self, at: int | slice) -> Any:
        return DeviceRows(self.accelerator, self.rows[at], self.lent) if isinstance(at, slice) else self.rows[at]

    @property
    def is_stacked(self) -> bool:
        """Whether all calls are one tensor."""
        return not isinstance(self.rows, list)

    def gather(self, accelerator: Accelerator, shape: Shape, padding: float) -> Any:
        """Returns one tensor on `accelerator` of all calls, each filled up to `shape` with `padding`: if they are one tensor
        there already, that tensor."""
        whole = (len(self), *shape)
        if self.is_stacked and tuple(self.rows.shape) == whole and accelerator.holds(self.rows):
            return self.rows
        rows = [_brought(row, accelerator) for row in self.rows]
        first = rows[0]
        if len(rows) == 1 and tuple(first.shape) == shape:
            return first[None]
        is_padded = any(tuple(row.shape) != shape for row in rows)
        batch = first.new_full(whole, padding) if is_padded else first.new_empty(whole)
        for at, row in enumerate(rows):
            batch[(at, *[slice(0, size) for size in row.shape])] = row
        return batch

    def on_host(self) -> Rows:
        """Returns copies on the host, in pinned memory. Waits for them."""
        arrays = self.accelerator.copy_to_host(self.rows if isinstance(self.rows, list) else [self.rows]).wait()
        return arrays if isinstance(self.rows, list) else arrays[0]

    def changed(self) -> list[BlockId]:
        """Returns the blocks of tensors that were lent and written to all the same."""
        return [each.block for each in self.lent if each.is_changed]


def _brought(row: Any, accelerator: Accelerator) -> Any:
    if isinstance(row, np.ndarray):
        return accelerator.copy_from_host(np.ascontiguousarray(row).reshape(row.shape))
    return row if accelerator.holds(row) else accelerator.copy_from_device(row)


def view_on_device(tensor: Any, index: Index) -> Any:
    """Returns ``tensor[index]`` by NumPy's rules: torch has no slices with negative steps, which are copied."""
    dim = 0
    for item in expanded_index(index, tuple(tensor.shape)):
        if item is None:
            tensor = tensor.unsqueeze(dim)
        elif isinstance(item, int):
            tensor = tensor.select(dim, item)
            continue
        else:
            places = range(*item.indices(tensor.shape[dim]))
            forward = places if places.step > 0 else places[::-1]
            tensor = tensor[(slice(None),) * dim + (slice(forward.start, forward.stop, forward.step),)]
            if places.step < 0:
                tensor = tensor.flip(dim)
        dim += 1
    return tensor
