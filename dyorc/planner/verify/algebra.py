"""Numbers as an algebra in which plans run."""

from collections.abc import Mapping, Sequence

import numpy as np

from dyorc.planner.program import Argument
from dyorc.planner.program.torch_operations import bind_arguments
from dyorc.planner.verify.meanings import OperationCall, meaning_of
from dyorc.planner.verify.numbers import Array, Numbers


class NumbersAlgebra:
    """Computes with numbers; `plan.interpret` runs plans with it."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def compute(
        self,
        op: str,
        arguments: Sequence[Argument],
        keywords: Sequence[tuple[str, Argument]],
        tensors: Mapping[str, Array],
        output_shape: tuple[int, ...],
    ) -> tuple[Array, ...]:
        """Computes one operation.

        Raises:
            UnknownOperationError: It has no definition.
        """
        meaning = meaning_of(op)
        named = bind_arguments(op, arguments, keywords)
        call = OperationCall(op=op.split(".")[1], named=named, tensors=tensors, shape=output_shape)
        result = meaning(self.numbers, call)
        return tuple(np.asarray(part) for part in result) if isinstance(result, tuple) else (np.asarray(result),)

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        """Returns zeros."""
        return self.numbers.zeros(shape, like)

    def add(self, left: Array, right: Array) -> Array:
        """Returns a sum; of truth values, whether either is true."""
        return left | right if left.dtype == np.bool_ else self.numbers.add(left, right)

    def concatenate(self, arrays: Sequence[Array], dim: int) -> Array:
        """Joins arrays along a dimension."""
        return np.concatenate(list(arrays), axis=dim)

    def put(self, target: Array, index: tuple[slice, ...], part: Array) -> Array:
        """Replaces a part of the target, in a copy: arrays may be views of others."""
        target = target.copy()
        target[(..., *index)] = part  # without the ellipsis, an array of objects takes a scalar's array for an object
        return target
