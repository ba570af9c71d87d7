"""Operations that only move elements."""

from collections.abc import Mapping
from typing import cast

import numpy as np

from dyorc.planner.verify.meanings.call import Meaning, OperationCall, Result
from dyorc.planner.verify.numbers import Array, Numbers


def _view(numbers: Numbers, call: OperationCall) -> Array:
    return call.array("self").reshape(call.shape)


def _permute(numbers: Numbers, call: OperationCall) -> Array:
    return np.transpose(call.array("self"), call.integers("dims"))


def _expand(numbers: Numbers, call: OperationCall) -> Array:
    return np.broadcast_to(call.array("self"), call.shape)


def _slice(numbers: Numbers, call: OperationCall) -> Array:
    array, dim = call.array("self"), call.integer("dim")
    cut = slice(cast(int | None, call.plain("start")), cast(int | None, call.plain("end")), call.integer("step", 1))
    return array[(*(slice(None),) * (dim % array.ndim), cut)]


def _select(numbers: Numbers, call: OperationCall) -> Array:
    array = call.array("self")
    return np.take(array, call.integer("index"), axis=call.integer("dim"))


def _split(numbers: Numbers, call: OperationCall) -> Result:
    array, sizes, dim = call.array("self"), call.integers("split_sizes"), call.integer("dim")
    if sum(sizes) != array.shape[dim]:
        raise ValueError(f"split_with_sizes into {sizes} of a dimension of {array.shape[dim]}")
    return tuple(np.split(array, np.cumsum(sizes)[:-1].tolist(), axis=dim))


def _cat(numbers: Numbers, call: OperationCall) -> Array:
    return np.concatenate(call.arrays, axis=call.integer("dim"))


def _stack(numbers: Numbers, call: OperationCall) -> Array:
    return np.stack(call.arrays, axis=call.integer("dim"))


def _pad(numbers: Numbers, call: OperationCall) -> Array:
    array, padding = call.array("self"), call.integers("pad")
    value = cast(float, call.plain("value", 0))
    fill = numbers.scalar(bool(value) if array.dtype == np.bool_ else value)
    for pair in range(len(padding) // 2):
        dim = array.ndim - 1 - pair
        for amount, is_front in ((padding[2 * pair], True), (padding[2 * pair + 1], False)):
            if amount < 0:
                array = np.take(
                    array, range(-amount if is_front else 0, array.shape[dim] + (0 if is_front else amount)), axis=dim
                )
            elif amount:
                block = np.broadcast_to(fill, [amount if d == dim else extent for d, extent in enumerate(array.shape)])
                array = np.concatenate([block, array] if is_front else [array, block], axis=dim)
    return array


def _flip(numbers: Numbers, call: OperationCall) -> Array:
    return np.flip(call.array("self"), tuple(call.integers("dims")))


def _roll(numbers: Numbers, call: OperationCall) -> Array:
    dims = call.integers("dims")
    return (
        np.roll(call.array("self"), call.integers("shifts"), dims)
        if dims
        else np.roll(call.array("self"), call.integers("shifts"))
    )


def _triangle(numbers: Numbers, call: OperationCall) -> Array:
    array, diagonal = call.array("self"), call.integer("diagonal")
    kept = (np.tril if call.op == "tril" else np.triu)(np.ones(array.shape[-2:], dtype=np.bool_), diagonal)
    return numbers.choose(np.broadcast_to(kept, array.shape), array, numbers.zeros(array.shape, array))


def _written(table: Array, cut: tuple[int | slice, ...], part: Array) -> Array:
    result = table.astype(np.result_type(table, part))
    result[(..., *cut)] = part  # without the ellipsis, an array of objects takes a scalar's array for an object
    return result


def _slice_scatter(numbers: Numbers, call: OperationCall) -> Array:
    table, dim = call.array("self"), call.integer("dim")
    cut = slice(cast(int | None, call.plain("start")), cast(int | None, call.plain("end")), call.integer("step", 1))
    return _written(table, (cut, *(slice(None),) * (table.ndim - 1 - dim % table.ndim)), call.array("src"))


def _select_scatter(numbers: Numbers, call: OperationCall) -> Array:
    table, dim = call.array("self"), call.integer("dim")
    return _written(table, (call.integer("index"), *(slice(None),) * (table.ndim - 1 - dim % table.ndim)), call.array("src"))


def _unfold(numbers: Numbers, call: OperationCall) -> Array:
    array, size, step = call.array("self"), call.integer("size"), call.integer("step", 1)
    if array.ndim == 0:
        return array.reshape([1])
    rows = np.moveaxis(array, call.integer("dimension"), -1)
    windows = [rows[..., start : start + size] for start in range(0, rows.shape[-1] - size + 1, step)]
    return np.moveaxis(np.stack(windows), 0, call.integer("dimension") % array.ndim)


MEANINGS: Mapping[str, Meaning] = {
    "view": _view,
    "permute": _permute,
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "unfold": _unfold,
    "split_with_sizes": _split,
    "cat": _cat,
    "stack": _stack,
    "constant_pad_nd": _pad,
    "flip": _flip,
    "roll": _roll,
    **dict.fromkeys(("tril", "triu"), _triangle),
}
