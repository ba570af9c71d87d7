"""Operations that look up or write elements by index, also by several at once (`x[i, :, j]`), as products with one-hot rows."""

from collections.abc import Mapping
from math import prod

import numpy as np

from dyorc.planner.program import ValueRef
from dyorc.planner.verify.meanings.call import Meaning, OperationCall, UnknownOperationError
from dyorc.planner.verify.meanings.elementwise import negate
from dyorc.planner.verify.meanings.planes import transpose
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
        return parts.apart(numbers.add(rows, numbers.matmul(transpose(parts.hot)[None], new[None])[0]), table.shape)
    for here, row in zip(parts.hot[:, :, None], new[:, None, :], strict=True):  # of equal indices, the last one stays
        stays = numbers.multiply(rows, numbers.add(numbers.scalar(1), negate(numbers, here)))
        rows = numbers.add(stays, numbers.multiply(here, row))
    return parts.apart(rows, table.shape)


def _embedding(numbers: Numbers, call: OperationCall) -> Array:
    table, indices = call.array("weight"), call.array("indices")
    rows = numbers.matmul(numbers.one_hot(indices.reshape([1, -1]), table.shape[0]), table[None])
    return rows.reshape([*indices.shape, table.shape[1]])


def _embedding_backward(numbers: Numbers, call: OperationCall) -> Array:
    gradient, indices = call.array("grad_output"), call.array("indices")
    if call.plain("scale_grad_by_freq"):
        weights = numbers.rows(call.tag, [indices.reshape([-1])], indices.size)  # by how often each index occurs
        gradient = numbers.multiply(gradient, weights.reshape(indices.shape)[..., None])
    if call.integer("padding_idx", -1) >= 0:
        gradient = numbers.multiply(
            gradient, numbers.function(("is no padding", call.plain("padding_idx")), [indices])[..., None]
        )
    hot = numbers.one_hot(indices.reshape([-1]), call.integer("num_weights"))
    return numbers.matmul(transpose(hot)[None], gradient.reshape([1, indices.size, gradient.shape[-1]]))[0]


def _gather(numbers: Numbers, call: OperationCall) -> Array:
    shape = call.array("index").shape
    table, indices = np.atleast_1d(call.array("self")), np.atleast_1d(call.array("index"))
    if indices.ndim != table.ndim:
        raise UnknownOperationError(f"{call.op} with no indices, of other dimensions")
    dim = call.integer("dim") % table.ndim
    cut = tuple(slice(None) if d == dim else slice(extent) for d, extent in enumerate(indices.shape))
    rows, columns = np.moveaxis(table[cut], dim, -1), np.moveaxis(indices, dim, -1)
    hot = numbers.one_hot(columns, table.shape[dim])
    return np.moveaxis(numbers.matmul(hot, rows[..., None])[..., 0], -1, dim).reshape(shape)


def _scatter(numbers: Numbers, call: OperationCall) -> Array:
    table, dim, indices = call.array("self"), call.integer("dim"), call.array("index")
    if indices.ndim != table.ndim and table.ndim:
        raise UnknownOperationError(f"{call.op} with no indices, of other dimensions")
    dim %= max(table.ndim, 1)
    source = call.operand("src" if call.has("src") else "value", numbers)
    if table.ndim == 0:
        parts = [array.reshape([1]) for array in (table, indices, source)]
        return _scattered(numbers, call, *parts).reshape([])
    read = tuple(slice(extent) for extent in indices.shape)
    source = source[read] if call.has("src") else np.broadcast_to(source, indices.shape)
    written = tuple(slice(None) if d == dim else part for d, part in enumerate(read))
    parts = [np.moveaxis(array, dim, -1) for array in (table[written], indices, source)]
    result = table.astype(object) if table.dtype == object else numbers.add(table, numbers.scalar(0)).copy()
    result[written] = np.moveaxis(_scattered(numbers, call, *parts), -1, dim)
    return result


def _scattered(numbers: Numbers, call: OperationCall, rows: Array, indices: Array, new: Array) -> Array:
    """Writes along the last dimension: sums and what overwrites exactly, other reductions as unknown functions of rows."""
    is_sum = call.op == "scatter_add" or call.plain("reduce") in ("add", "sum")
    if is_sum and rows.dtype == np.bool_:
        raise UnknownOperationError(f"{call.op} that adds truths")
    if call.plain("include_self") is False or (call.plain("reduce") is not None and not is_sum):
        return numbers.rows(call.tag, [rows, indices, new], rows.shape[-1])
    hot = numbers.one_hot(indices, rows.shape[-1])
    for number in range(indices.shape[-1]):
        rows = _written(numbers, rows, hot[..., number, :], new[..., number, None], is_sum)
    return rows


def _written(numbers: Numbers, rows: Array, here: Array, element: Array, is_sum: bool) -> Array:
    stays = rows if is_sum else numbers.multiply(rows, numbers.add(numbers.scalar(1), negate(numbers, here)))
    return numbers.add(stays, numbers.multiply(here, element))


def _index_select(numbers: Numbers, call: OperationCall) -> Array:
    table, indices = np.atleast_1d(call.array("self")), call.array("index")
    dim = call.integer("dim") % table.ndim
    rows = np.moveaxis(table, dim, -1)
    hot = transpose(numbers.one_hot(indices.reshape([-1]), table.shape[dim]))
    selected = numbers.matmul(rows.reshape([-1, rows.shape[-1]]), hot).reshape([*rows.shape[:-1], indices.size])
    return np.moveaxis(selected, -1, dim).reshape(call.shape)


MEANINGS: Mapping[str, Meaning] = {
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "gather": _gather,
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), _scatter),
    "index_select": _index_select,
}
