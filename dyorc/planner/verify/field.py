"""Elements of the field of integers modulo the prime 2^31 - 1: exact arithmetic, so that equal means `==`.

Sums and products are those of the field. A function about which nothing is known is a keyed pseudo-random one. Two plans that
differ agree on random inputs with a probability of at most (degree of the polynomials) / (2^31 - 1) for each trial
(Schwartz and Zippel).
"""

import hashlib
from collections.abc import Hashable, Sequence
from fractions import Fraction
from math import isfinite

import numpy as np

from dyorc.planner.verify.numbers import Array, broadcast

PRIME = 2**31 - 1
_CHUNK = 64
"""How many products of a 15-bit and a 31-bit number a float64 adds up exactly."""


class Field:
    """Arithmetic of the field, as `Numbers`. Truth values are NumPy's."""

    def random(self, shape: tuple[int, ...], dtype: str, draw: np.random.Generator) -> Array:
        """Returns random elements, or random truth values."""
        if dtype == "bool":
            return draw.integers(0, 2, shape).astype(np.bool_)
        return draw.integers(0, PRIME, shape, dtype=np.int64)

    def scalar(self, value: complex) -> Array:
        if isinstance(value, bool):
            return np.asarray(value)
        if isinstance(value, complex) or not isfinite(value):
            return np.asarray(_key(("constant", str(value))) % np.uint64(PRIME)).astype(np.int64)
        exact = Fraction(value)
        return np.asarray(exact.numerator % PRIME * pow(exact.denominator, -1, PRIME) % PRIME, dtype=np.int64)

    def add(self, left: Array, right: Array) -> Array:
        return (_element(left) + _element(right)) % PRIME

    def multiply(self, left: Array, right: Array) -> Array:
        return _element(left) * _element(right) % PRIME

    def matmul(self, left: Array, right: Array) -> Array:
        left, right = _element(left), _element(right)
        num = left.shape[-1]
        total = np.zeros((*left.shape[:-1], right.shape[-1]), dtype=np.int64)
        for start in range(0, num, _CHUNK):
            left_chunk, right_chunk = left[..., start : start + _CHUNK], right[..., start : start + _CHUNK, :].astype(np.float64)
            high = np.matmul((left_chunk >> 16).astype(np.float64), right_chunk).astype(np.int64) % PRIME
            low = np.matmul((left_chunk & 0xFFFF).astype(np.float64), right_chunk).astype(np.int64) % PRIME
            total = (total + (high << 16) + low) % PRIME
        return total

    def total(self, array: Array, dims: Sequence[int]) -> Array:
        return np.asarray(np.sum(_element(array), axis=tuple(dims), keepdims=True, dtype=np.int64)) % PRIME

    def choose(self, condition: Array, left: Array, right: Array) -> Array:
        if left.dtype != right.dtype:
            left, right = _element(left), _element(right)
        return np.where(condition.astype(np.bool_), left, right)

    def function(self, tag: Hashable, arrays: Sequence[Array], *, is_truth: bool = False) -> Array:
        state = np.asarray(_key(tag))
        for array in broadcast(arrays):
            state = _mixed(state * np.uint64(0x9E3779B97F4A7C15) + _element(array).astype(np.uint64))
        return _result(state, is_truth)

    def rows(self, tag: Hashable, arrays: Sequence[Array], num: int, *, is_truth: bool = False) -> Array:
        state = np.asarray(_key(tag))
        for number, array in enumerate(arrays):
            keys = _positions((tag, number), array.shape[-1])
            terms = _mixed(_element(array).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + keys)
            state = _mixed(state * np.uint64(0x9E3779B97F4A7C15) + np.sum(terms, axis=-1, dtype=np.uint64))
        return _result(_mixed(state[..., None] + _positions((tag, "out"), num)), is_truth)

    def one_hot(self, indices: Array, num: int) -> Array:
        elements = _element(indices) % max(num, 1)
        return (elements[..., None] == np.arange(num)).astype(np.int64)

    def coefficients(self, tag: Hashable, num: int) -> Array:
        return _result(_positions(tag, num), False)

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        return np.zeros(shape, dtype=like.dtype)


def _element(array: Array) -> Array:
    return array.astype(np.int64) if array.dtype == np.bool_ else array


def _key(tag: Hashable) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(tag).encode(), digest_size=8).digest()))


def _positions(tag: Hashable, num: int) -> Array:
    return _mixed(np.arange(1, num + 1, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95) + np.asarray(_key(tag)))


def _mixed(state: Array) -> Array:
    """The last steps of SplitMix64, a permutation in which each bit of the input changes half of the output's."""
    with np.errstate(over="ignore"):
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))


def _result(state: Array, is_truth: bool) -> Array:
    return (state >> np.uint64(63)).astype(np.bool_) if is_truth else (state % np.uint64(PRIME)).astype(np.int64)
