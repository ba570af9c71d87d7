"""Sums and products, which are exact, and other operations on rows, where only the dependences are known."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from dyorc.planner.verify.meanings.call import Meaning, OperationCall, Result
from dyorc.planner.verify.numbers import Array, Numbers


def dims_of(call: OperationCall, num_dims: int) -> list[int]:
    """Returns the dimensions that an argument names; all if it names none. A scalar has none, even if the argument names some."""
    return sorted({dim % num_dims for dim in call.integers("dim") if num_dims} or range(num_dims))


def reduced(array: Array, dims: Sequence[int], keeps: bool) -> Array:
    """Returns the array without dimensions of extent 1 that have been reduced, unless they are kept."""
    return array if keeps else array.reshape([extent for dim, extent in enumerate(array.shape) if dim not in dims])


def _apart(array: Array, dims: Sequence[int]) -> Array:
    """Moves dimensions to the end and joins them: `[..., k]`."""
    outer = [dim for dim in range(array.ndim) if dim not in dims]
    moved = np.transpose(array, [*outer, *dims])
    return moved.reshape([*(array.shape[dim] for dim in outer), prod(array.shape[dim] for dim in dims)])


def _row(numbers: Numbers, call: OperationCall) -> Array:
    """A row to a row along one dimension: softmax."""
    array = np.atleast_1d(call.arrays[0])  # torch takes a scalar for a row of one element
    dim = call.integer("dim") % array.ndim
    row = numbers.rows(call.tag, [_apart(array, [dim])], array.shape[dim])
    return np.moveaxis(row, -1, dim).reshape(call.arrays[0].shape)


def _extremes(numbers: Numbers, call: OperationCall) -> Result:
    """A row to a row of values and one of positions: sort and topk."""
    array = np.atleast_1d(call.arrays[0])
    dim = call.integer("dim", -1) % array.ndim
    row, num = _apart(array, [dim]), call.integer("k", array.shape[dim])
    both = [np.moveaxis(numbers.rows((call.tag, which), [row], num), -1, dim) for which in range(2)]
    return tuple(part if call.arrays[0].ndim else part.reshape([]) for part in both)


def _reduction(numbers: Numbers, call: OperationCall) -> Result:
    """Dimensions to one element each."""
    if call.op in ("max", "min") and call.has("other"):
        return numbers.function(call.tag, call.arrays)
    array = call.arrays[0]
    dims = dims_of(call, array.ndim)
    num = 2 if call.op == "var_mean" or (call.op in ("max", "min") and "dim" in call.named) else 1
    keeps = bool(call.plain("keepdim", False))
    arrays = [
        numbers.rows((call.tag, which), [_apart(array, dims)], 1, is_truth=call.op in ("any", "all"))[..., 0]
        for which in range(num)
    ]
    shape = tuple(1 if dim in dims else extent for dim, extent in enumerate(array.shape))
    results = tuple(part.reshape(shape) if keeps else part for part in arrays)
    return results if num > 1 else results[0]


def _layer_norm(numbers: Numbers, call: OperationCall) -> Result:
    array = call.arrays[0]
    num_outer = array.ndim - len(call.integers("normalized_shape"))
    outer, inner = array.shape[:num_outer], array.shape[num_outer:]
    row = array.reshape([*outer, prod(inner)])
    weights = [np.broadcast_to(a.reshape([prod(inner)]), row.shape) for a in call.arrays[1:]]
    tag = (call.op, call.plain("eps"), call.has("weight"), call.has("bias"))
    normal = numbers.rows(tag, [row, *weights], prod(inner)).reshape(array.shape)
    ones = (1,) * len(inner)
    mean, scale = (numbers.rows((tag, which), [row], 1).reshape([*outer, *ones]) for which in ("mean", "scale"))
    return normal, mean, scale


def _group_norm(numbers: Numbers, call: OperationCall) -> Result:
    array = call.arrays[0]
    num = int(array.shape[0])
    groups = call.integer("group")
    row = array.reshape([num, array.size // max(num, 1)])
    weights = [np.broadcast_to(a.reshape([1, -1]), (num, a.size)) for a in call.arrays[1:]]
    normal = numbers.rows(call.tag, [row, *weights], row.shape[-1]).reshape(array.shape)
    mean, scale = (numbers.rows((call.tag, which), [row], groups) for which in ("mean", "scale"))
    return normal, mean, scale


_REDUCTIONS = "amax amin any all argmax argmin prod var var_mean logsumexp max min"


def _sum(numbers: Numbers, call: OperationCall) -> Array:
    array = call.array("self")
    dims = dims_of(call, array.ndim)
    return reduced(numbers.total(array, dims), dims, bool(call.plain("keepdim", False)))


def _matmul(numbers: Numbers, call: OperationCall) -> Array:
    return numbers.matmul(call.array("self"), call.array("mat2"))


def _cumsum(numbers: Numbers, call: OperationCall) -> Array:
    array = np.atleast_1d(call.array("self"))
    dim = call.integer("dim") % array.ndim
    lower = np.tril(np.ones((array.shape[dim],) * 2, dtype=np.int64)).T
    wide = np.moveaxis(array, dim, -1)[..., None, :]
    return np.moveaxis(numbers.matmul(wide, _counted(numbers, lower))[..., 0, :], -1, dim).reshape(call.array("self").shape)


def _counted(numbers: Numbers, array: Array) -> Array:
    """Small integers as numbers of the algebra."""
    return numbers.add(array, numbers.scalar(0)) if array.size else array


MEANINGS: Mapping[str, Meaning] = {
    **dict.fromkeys(("_softmax", "_log_softmax", "cumprod", "logcumsumexp"), _row),
    **dict.fromkeys(("sort", "topk", "cummax", "cummin"), _extremes),
    **dict.fromkeys(_REDUCTIONS.split(), _reduction),
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "sum": _sum,
    **dict.fromkeys(("mm", "bmm"), _matmul),
    "cumsum": _cumsum,
}
