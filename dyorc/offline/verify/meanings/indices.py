"""Operations that look elements up, by a product with rows of which one element is 1."""

from collections.abc import Mapping

import numpy as np

from dyorc.offline.verify.meanings.call import Call, Meaning, UnknownOperationError
from dyorc.offline.verify.meanings.elementwise import negated
from dyorc.offline.verify.meanings.planes import swapped
from dyorc.offline.verify.numbers import Array, Numbers


def _embedding(numbers: Numbers, call: Call) -> Array:
    table, indices = call.array("weight"), call.array("indices")
    found = numbers.matmul(numbers.one_hot(indices.reshape([1, -1]), table.shape[0]), table[None])
    return found.reshape([*indices.shape, table.shape[1]])


def _embedding_backward(numbers: Numbers, call: Call) -> Array:
    gradient, indices = call.array("grad_output"), call.array("indices")
    if call.integer("padding_idx", -1) >= 0:
        gradient = numbers.multiply(gradient, numbers.function("is no padding", [indices])[..., None])
    hot = swapped(numbers.one_hot(indices.reshape([-1]), call.integer("num_weights")))
    sums = numbers.matmul(hot[None], gradient.reshape([1, indices.size, gradient.shape[-1]]))[0]
    if call.plain("scale_grad_by_freq"):  # divided by how often an index is there, among all
        return numbers.multiply(sums, numbers.rows("share", [hot], 1))
    return sums


def _gather(numbers: Numbers, call: Call) -> Array:
    shape = call.array("index").shape
    table, indices = np.atleast_1d(call.array("self")), np.atleast_1d(call.array("index"))
    dim = call.integer("dim") % table.ndim
    cut = tuple(slice(None) if d == dim else slice(extent) for d, extent in enumerate(indices.shape))
    rows, found = np.moveaxis(table[cut], dim, -1), np.moveaxis(indices, dim, -1)
    hot = numbers.one_hot(found, table.shape[dim])
    return np.moveaxis(numbers.matmul(hot, rows[..., None])[..., 0], -1, dim).reshape(shape)


def _scatter(numbers: Numbers, call: Call) -> Array:
    table, indices = np.atleast_1d(call.array("self")), np.atleast_1d(call.array("index"))
    dim = call.integer("dim") % table.ndim
    if call.plain("reduce") is not None or (call.op == "scatter_add" and table.dtype == np.bool_):
        raise UnknownOperationError(f"{call.op} that reduces, or adds truths")
    source = np.broadcast_to(call.operand("src" if call.has("src") else "value", numbers), indices.shape)
    if any(a != b for d, (a, b) in enumerate(zip(table.shape, indices.shape, strict=True)) if d != dim):
        raise UnknownOperationError(f"{call.op} with fewer indices than rows")
    rows, found, new = (np.moveaxis(array, dim, -1) for array in (table, indices, source))
    hot = numbers.one_hot(found, table.shape[dim])
    for number in range(found.shape[-1]):
        here, element = hot[..., number, :], new[..., number, None]
        stays = (
            rows if call.op == "scatter_add" else numbers.multiply(rows, numbers.add(numbers.scalar(1), negated(numbers, here)))
        )
        rows = numbers.add(stays, numbers.multiply(here, element))
    return np.moveaxis(rows, -1, dim).reshape(call.array("self").shape)


def _index_select(numbers: Numbers, call: Call) -> Array:
    table, indices = np.atleast_1d(call.array("self")), call.array("index")
    dim = call.integer("dim") % table.ndim
    rows = np.moveaxis(table, dim, -1)
    hot = swapped(numbers.one_hot(indices.reshape([-1]), table.shape[dim]))
    found = numbers.matmul(rows.reshape([-1, rows.shape[-1]]), hot).reshape([*rows.shape[:-1], indices.size])
    return np.moveaxis(found, -1, dim).reshape(call.shape)


MEANINGS: Mapping[str, Meaning] = {
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "gather": _gather,
    **dict.fromkeys(("scatter", "scatter_add"), _scatter),
    "index_select": _index_select,
}
