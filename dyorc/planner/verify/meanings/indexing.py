"""Indexing with several tensors, as in `x[i, :, j]`, and writing so."""

from collections.abc import Mapping
from math import prod

import numpy as np

from dyorc.planner.program import ValueRef
from dyorc.planner.verify.meanings.call import Meaning, OperationCall, UnknownOperationError
from dyorc.planner.verify.meanings.elementwise import negated
from dyorc.planner.verify.meanings.planes import swapped
from dyorc.planner.verify.numbers import Array, Numbers


class _Indexing:
    """The indexed dimensions of a table moved to the front and joined, `[joined, rest]`, and which row each index means.

    Attributes:
        at: The indexed dimensions.
        wide: The shape that the indices have together.
        hot: `[indices, joined]`: 1 where an index means a row.
        order: The dimensions of the table, the indexed ones first.
    """

    def __init__(self, numbers: Numbers, call: OperationCall) -> None:
        table, listed = call.array("self"), call.named["indices"]
        assert isinstance(listed, tuple)
        indices = {dim: call.tensors[index.name] for dim, index in enumerate(listed) if isinstance(index, ValueRef)}
        if any(array.dtype == np.bool_ for array in indices.values()):
            raise UnknownOperationError(f"{call.op} with a mask")
        self.at = list(indices)
        self.wide = np.broadcast_shapes(*(array.shape for array in indices.values()))
        self.order = [*self.at, *(dim for dim in range(table.ndim) if dim not in indices)]
        self.hot = np.broadcast_to(numbers.scalar(1), (prod(self.wide), 1))
        for dim, array in indices.items():
            hot = numbers.one_hot(np.broadcast_to(array, self.wide).reshape([-1]), table.shape[dim])
            joined = numbers.multiply(self.hot[:, :, None], hot[:, None, :])
            self.hot = joined.reshape([prod(self.wide), self.hot.shape[1] * table.shape[dim]])

    @property
    def start(self) -> int:
        """Where the dimensions of the indices stand in the result: first, unless the indexed ones lie side by side."""
        is_one_block = self.at == list(range(self.at[0], self.at[0] + len(self.at)))
        return self.at[0] if is_one_block else 0

    def joined(self, table: Array) -> Array:
        """Returns `[joined, rest]`."""
        moved = np.transpose(table, self.order)
        return moved.reshape([self.hot.shape[1], prod(moved.shape[len(self.at) :])])

    def apart(self, rows: Array, shape: tuple[int, ...]) -> Array:
        """Undoes `joined` for a table of that shape."""
        return np.transpose(rows.reshape([shape[dim] for dim in self.order]), np.argsort(self.order).tolist())


def _index(numbers: Numbers, call: OperationCall) -> Array:
    table, parts = call.array("self"), _Indexing(numbers, call)
    rest = [table.shape[dim] for dim in parts.order[len(parts.at) :]]
    rows = numbers.matmul(parts.hot[None], parts.joined(table)[None])[0].reshape([*parts.wide, *rest])
    num = len(parts.wide)
    return np.moveaxis(rows, range(num), range(parts.start, parts.start + num))


def _index_put(numbers: Numbers, call: OperationCall) -> Array:
    table, parts = call.array("self"), _Indexing(numbers, call)
    rest = [table.shape[dim] for dim in parts.order[len(parts.at) :]]
    num, start = len(parts.wide), parts.start
    shape = (*rest[:start], *parts.wide, *rest[start:])
    values = call.array("values")
    values = values.reshape(values.shape[max(values.ndim - len(shape), 0) :])  # further dimensions have extent 1
    new = np.moveaxis(np.broadcast_to(values, shape), range(start, start + num), range(num))
    new = new.reshape([prod(parts.wide), prod(rest)])
    rows = parts.joined(table)
    if call.plain("accumulate") and table.dtype == np.bool_:
        raise UnknownOperationError(f"{call.op} that adds truth values")
    if call.plain("accumulate"):
        return parts.apart(numbers.add(rows, numbers.matmul(swapped(parts.hot)[None], new[None])[0]), table.shape)
    for here, row in zip(parts.hot[:, :, None], new[:, None, :], strict=True):  # of equal indices, the last one stays
        stays = numbers.multiply(rows, numbers.add(numbers.scalar(1), negated(numbers, here)))
        rows = numbers.add(stays, numbers.multiply(here, row))
    return parts.apart(rows, table.shape)


MEANINGS: Mapping[str, Meaning] = {
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
}
