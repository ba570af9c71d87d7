"""Sums and products."""

from collections.abc import Mapping

import numpy as np

from dyorc.planner.verify.meanings.call import Meaning, OperationCall
from dyorc.planner.verify.meanings.rows import dims_of, reduced
from dyorc.planner.verify.numbers import Array, Numbers


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
    "sum": _sum,
    **dict.fromkeys(("mm", "bmm"), _matmul),
    "cumsum": _cumsum,
}
