"""The seam between what operations mean and what kind of numbers they are computed with.

Both kinds live in NumPy arrays: elements of a finite field (field.py) in int64, formulas (formulas.py) as objects. Truth values
are a kind of number that is 0 or 1.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


class Numbers(Protocol):
    """A commutative ring with functions about which nothing is known but that equal arguments have equal results."""

    def scalar(self, value: complex) -> Array:
        """Returns a constant; one that is not finite is a separate unknown."""
        ...

    def add(self, left: Array, right: Array) -> Array:
        """Returns a sum, broadcast."""
        ...

    def multiply(self, left: Array, right: Array) -> Array:
        """Returns a product, broadcast."""
        ...

    def matmul(self, left: Array, right: Array) -> Array:
        """Returns the product of two matrices, or of two stacks of them."""
        ...

    def total(self, array: Array, dims: Sequence[int]) -> Array:
        """Returns the sum along dimensions, which stay with extent 1."""
        ...

    def choose(self, condition: Array, left: Array, right: Array) -> Array:
        """Returns elements of the left where the condition is true, else of the right, broadcast."""
        ...

    def function(self, tag: Hashable, arrays: Sequence[Array], *, is_truth: bool = False) -> Array:
        """Applies an unknown function, named by the tag, to the elements of arrays, broadcast."""
        ...

    def rows(self, tag: Hashable, arrays: Sequence[Array], num: int, *, is_truth: bool = False) -> Array:
        """Applies unknown functions to rows.

        Args:
            tag: Names the functions.
            arrays: Each `[..., k]`, with its own k.
            num: How many functions.
            is_truth: Whether they return truth values.

        Returns:
            `[..., num]`.
        """
        ...

    def one_hot(self, indices: Array, num: int) -> Array:
        """Returns `[..., num]`: 1 where the index is the position, else 0."""
        ...

    def coefficients(self, tag: Hashable, num: int) -> Array:
        """Returns unknown constants, `[num]`, named by the tag."""
        ...

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        """Returns zeros."""
        ...


def broadcast(arrays: Sequence[Array]) -> list[Array]:
    """Brings arrays to one shape, without copies."""
    return [np.asarray(array) for array in np.broadcast_arrays(*arrays)]
