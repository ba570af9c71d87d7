"""Formulas as numbers: polynomials with rational coefficients over unknowns and results of unknown functions.

Each formula is kept in a normal form: a sum of monomials, each a product of atoms. An atom is an unknown, or an unknown function
applied to formulas in normal form; equal ones are one object (hash consing). Two formulas that have one normal form are equal
for all real numbers and all functions, so most claims need no solver. Truth values are atoms that are their own squares.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import TypeAlias, cast

import numpy as np

from dyorc.planner.verify.numbers import Array, broadcast

Monomial: TypeAlias = tuple[int, ...]
"""Numbers of atoms, in order; one that is there twice is a square."""


class Formula:
    """A polynomial in normal form. Never changes."""

    __slots__ = ("_key", "terms", "truths")

    def __init__(self, terms: Mapping[Monomial, Fraction | int], truths: frozenset[int] | set[int]) -> None:
        self.terms = terms
        self.truths = truths  # the atoms that are truth values, of all formulas together
        self._key: frozenset[tuple[Monomial, Fraction | int]] | None = None

    @property
    def key(self) -> frozenset[tuple[Monomial, Fraction | int]]:
        """Equal for equal formulas."""
        if self._key is None:
            self._key = frozenset(self.terms.items())
        return self._key

    def __add__(self, other: "Formula") -> "Formula":
        if not self.terms or not other.terms:
            return self if self.terms else other
        terms = dict(self.terms)
        for monomial, factor in other.terms.items():
            total = terms.get(monomial, 0) + factor
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Formula(terms, self.truths)

    def __mul__(self, other: "Formula") -> "Formula":
        terms: dict[Monomial, Fraction | int] = {}
        for left, left_factor in self.terms.items():
            for right, factor in other.terms.items():
                monomial = self._product(left, right)
                total = terms.get(monomial, 0) + left_factor * factor
                if total:
                    terms[monomial] = total
                else:
                    terms.pop(monomial, None)
        return Formula(terms, self.truths)

    def _product(self, left: Monomial, right: Monomial) -> Monomial:
        if not left or not right:
            return left or right
        again = self.truths.intersection(left, right)
        return tuple(sorted([*left, *(atom for atom in right if atom not in again)]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, slots=True)
class Atom:
    """The meaning of an atom: an unknown if it has no arguments."""

    tag: Hashable
    arguments: tuple[Formula, ...]


class Formulas:
    """Formulas as `Numbers`, in object arrays. One table of atoms for each proof, so that memory does not grow."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.truths: set[int] = set()
        self._numbers: dict[tuple[Hashable, tuple[frozenset[tuple[Monomial, Fraction | int]], ...]], int] = {}
        self._zero, self._one = Formula({}, self.truths), Formula({(): 1}, self.truths)

    def unknowns(self, tag: tuple[Hashable, ...], shape: tuple[int, ...], dtype: str) -> Array:
        """Returns an unknown for each element."""
        array = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            array[index] = self._atom((*tag, index), (), dtype == "bool")
        return array

    def text(self, formula: Formula, depth: int = 2) -> str:
        """A formula for people, shortened."""
        terms = [self._term(monomial, factor, depth) for monomial, factor in list(formula.terms.items())[:4]]
        return (" + ".join(terms) or "0") + (f" + {len(formula.terms) - 4} more" if len(formula.terms) > 4 else "")

    def _term(self, monomial: Monomial, factor: Fraction | int, depth: int) -> str:
        parts = [self.name(atom, depth) for atom in monomial]
        return "*".join(parts if factor == 1 and parts else [str(factor), *parts])

    def name(self, number: int, depth: int = 2) -> str:
        """An atom for people."""
        atom = self.atoms[number]
        if not atom.arguments:
            return _name(atom.tag)
        inner = ", ".join(self.text(argument, depth - 1) for argument in atom.arguments[:3]) if depth else "..."
        return f"{_name(atom.tag)}({inner}{', ...' if len(atom.arguments) > 3 else ''})"

    def scalar(self, value: complex) -> Array:
        if isinstance(value, complex) or not isfinite(value):
            return _array(self._atom(("constant", str(value)), (), False))
        exact = Fraction(value)
        return _array(Formula({(): exact.numerator if exact.denominator == 1 else exact} if exact else {}, self.truths))

    def add(self, left: Array, right: Array) -> Array:
        return _array(self._formulas(left) + self._formulas(right))

    def multiply(self, left: Array, right: Array) -> Array:
        return _array(self._formulas(left) * self._formulas(right))

    def matmul(self, left: Array, right: Array) -> Array:
        products = _array(self._formulas(left)[..., :, :, None] * self._formulas(right)[..., None, :, :])
        return self.total(products, [products.ndim - 2])[..., 0, :]

    def total(self, array: Array, dims: Sequence[int]) -> Array:
        shape = [1 if dim in dims else extent for dim, extent in enumerate(array.shape)]
        if array.size == 0:
            sums = np.empty(shape, dtype=object)
            sums.fill(self._zero)
            return sums
        return _array(np.add.reduce(self._formulas(array), axis=tuple(dims), keepdims=True)) if dims else self._formulas(array)

    def choose(self, condition: Array, left: Array, right: Array) -> Array:
        truth = self._formulas(condition)
        otherwise = self.add(self.scalar(1), self.multiply(self.scalar(-1), truth))
        return self.add(self.multiply(truth, left), self.multiply(otherwise, right))

    def function(self, tag: Hashable, arrays: Sequence[Array], *, is_truth: bool = False) -> Array:
        wide = broadcast([self._formulas(array) for array in arrays])
        results = np.empty(wide[0].shape if wide else (), dtype=object)
        for index in np.ndindex(*results.shape):
            arguments = cast(tuple[Formula, ...], tuple(array[index] for array in wide))
            results[index] = self._atom(tag, arguments, is_truth)
        return results

    def rows(self, tag: Hashable, arrays: Sequence[Array], num: int, *, is_truth: bool = False) -> Array:
        outer = arrays[0].shape[:-1]
        results = np.empty((*outer, num), dtype=object)
        inner = [self._formulas(array) for array in arrays]
        for index in np.ndindex(*outer):
            row = tuple(formula for array in inner for formula in array[index])
            for position in range(num):
                results[(*index, position)] = self._atom((tag, position), row, is_truth)
        return results

    def one_hot(self, indices: Array, num: int) -> Array:
        hot = np.empty((*indices.shape, num), dtype=object)
        whole = self._formulas(indices)
        for index in np.ndindex(*indices.shape):
            row = (cast(Formula, whole[index]),)
            for position in range(num):
                hot[(*index, position)] = self._atom(("is", position), row, True)
        return hot

    def coefficients(self, tag: Hashable, num: int) -> Array:
        return self.unknowns(("coefficient", tag), (num,), "float")

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        array = np.empty(shape, dtype=object)
        array.fill(self._zero)
        return array

    def _atom(self, tag: Hashable, arguments: tuple[Formula, ...], is_truth: bool) -> Formula:
        key = (tag, tuple(argument.key for argument in arguments))
        number = self._numbers.setdefault(key, len(self.atoms))
        if number == len(self.atoms):
            self.atoms.append(Atom(tag, arguments))
            if is_truth:
                self.truths.add(number)
        return Formula({(number,): 1}, self.truths)

    def _formulas(self, array: Array) -> Array:
        """The array, with small integers and truth values as formulas."""
        array = np.asarray(array)
        if array.dtype == object:
            return array
        formulas = np.empty(array.shape, dtype=object)
        for index in np.ndindex(*array.shape):
            formulas[index] = self.scalar(int(array[index]))[()]
        return formulas


def _array(thing: object) -> Array:
    if isinstance(thing, np.ndarray):
        return thing
    array = np.empty((), dtype=object)
    array[()] = thing
    return array


def _name(tag: Hashable) -> str:
    if isinstance(tag, tuple) and len(tag) == 4 and tag[0] == "x":
        return f"x{tag[1]}{'abc'[int(str(tag[2]))] if int(str(tag[2])) < 3 else tag[2]}{list(tag[3])}"
    while isinstance(tag, tuple) and tag:
        tag = tag[0]
    return str(tag)
