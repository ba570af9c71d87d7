"""Torch's numbers as elements of the verifier's field: exactly, so that sums and products of numbers are those of elements.

A float is an integer times a power of two, and 2^31 is 1 in the field of integers modulo 2^31 - 1.
"""

from collections.abc import Hashable, Sequence

import numpy as np
import torch

from dyorc.planner.verify.field import PRIME, Field
from dyorc.planner.verify.numbers import Array


def elements_of(tensor: torch.Tensor) -> Array:
    """Returns the elements that stand for a tensor's numbers; truth values stay such."""
    array = tensor.detach().numpy() if tensor.dtype is not torch.bfloat16 else tensor.detach().float().numpy()
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind in "iu":
        return np.asarray(array.astype(np.int64) % PRIME)
    is_finite = np.isfinite(array)
    mantissa, exponent = np.frexp(np.where(is_finite, array, 0).astype(np.float64))
    whole = (mantissa * 2.0**53).astype(np.int64) % PRIME
    elements = np.asarray(whole * (np.int64(1) << ((exponent.astype(np.int64) - 53) % 31)) % PRIME)
    for value in (float("nan"), float("inf"), float("-inf")):
        is_value = np.isnan(array) if np.isnan(value) else array == value
        elements = np.where(is_value, Field().scalar(value), elements)
    return elements


class ExactField(Field):
    """The field, with the functions that powers of two make known; it notes whether any other was applied.

    Args:
        salt: With another one, the unknown functions are others.

    Attributes:
        is_exact: Whether no unknown function has been applied.
    """

    def __init__(self, salt: int = 0) -> None:
        self.is_exact = True
        self._salt = salt

    def function(self, tag: Hashable, arrays: Sequence[Array], *, is_truth: bool = False) -> Array:
        """Computes inverses; any other function is unknown, and its truth values are as many as numbers, so that none meet."""
        if tag == "inverse":
            array = arrays[0].astype(np.int64)
            powers = 1 << np.arange(31, dtype=np.int64)
            signed = np.concatenate([powers, PRIME - powers])
            if np.isin(array, signed).all():
                inverses = dict(zip(signed.tolist(), [pow(power, -1, PRIME) for power in signed.tolist()], strict=True))
                return np.asarray(np.vectorize(inverses.get, otypes=[np.int64])(array))
        self.is_exact = False
        return super().function((self._salt, tag), arrays)

    def rows(self, tag: Hashable, arrays: Sequence[Array], num: int, *, is_truth: bool = False) -> Array:
        """Applies unknown functions to rows."""
        self.is_exact = False
        return super().rows((self._salt, tag), arrays, num)

    def coefficients(self, tag: Hashable, num: int) -> Array:
        """Returns unknown constants."""
        self.is_exact = False
        return super().coefficients((self._salt, tag), num)
