"""What the verifier believes of an operation beside what torch computes.

Where its definition is exact, the numbers must be torch's. Where it only says what depends on what, by unknown functions, torch
must agree with it wherever it says that two results are equal, under many changes of the tensors: the real function is
one of the functions that the unknown one stands for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dyorc.planner.program.evaluate import compute
from dyorc.planner.program.graph import Argument
from dyorc.planner.verify.algebra import NumbersAlgebra
from dyorc.planner.verify.field import PRIME
from dyorc.planner.verify.meanings import UnknownOperationError
from dyorc.planner.verify.numbers import Array
from tests.operators.closeness import largest, tolerance_of
from tests.operators.elements import ExactField, elements_of
from tests.operators.samples import OperationSample
from tests.operators.variants import changed, powers_of_two, rounded, summands

_MAX_ELEMENTS = 3_000


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How a definition compares with torch.

    Attributes:
        is_exact: Whether the numbers were compared.
        num_equal: How many pairs of numbers had to be equal.
        wrong: Where torch disagrees; empty if nowhere.
    """

    is_exact: bool
    num_equal: int
    wrong: str = ""


def compare(sample: OperationSample) -> Comparison | None:
    """Compares the definition of an operation with torch; returns None if it has none for these arguments, or is too large."""
    if _is_large(sample):
        return None
    try:
        is_exact, pairs = _exactly(sample)
        return _of_numbers(sample, pairs) if is_exact else _of_equalities(sample)
    except UnknownOperationError:
        return None
    except Exception as error:
        return Comparison(is_exact=False, num_equal=0, wrong=f"{type(error).__name__}: {error}")


def _is_large(sample: OperationSample) -> bool:
    """Whether there are many elements, or numbers with whom a smaller one shares its element of the field."""
    tensors = [*sample.inputs.values(), *sample.outputs.values()]
    return sum(tensor.numel() for tensor in tensors) > _MAX_ELEMENTS or largest(tensors) > 2**30


def _exactly(sample: OperationSample) -> tuple[bool, list[tuple[Array, torch.Tensor]]]:
    tensors = powers_of_two(sample.inputs)
    arguments, keywords = sample.node.arguments, sample.node.keywords
    if sample.inputs:  # the arguments of constants say how many elements there are
        arguments, keywords = _exact(sample, arguments), [(key, _exact(sample, (value,))[0]) for key, value in keywords]
    field = ExactField()
    meant = _meant(sample, tensors, field, arguments, keywords)
    if not field.is_exact:
        return False, []
    return True, list(zip(meant, _computed(sample, tensors, arguments, keywords), strict=True))


def _exact(sample: OperationSample, arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """The arguments with powers of two for floats, and for numbers that divide."""

    def power(argument: Argument) -> Argument:
        is_divisor = sample.name == "div" and isinstance(argument, int) and not isinstance(argument, bool)
        if (isinstance(argument, float) and np.isfinite(argument) and argument != 0) or (is_divisor and argument):
            number = float(argument)  # pyright: ignore[reportArgumentType]
            return float(np.copysign(2.0 ** round(np.clip(np.log2(abs(number)), -4, 4)), number))
        return argument

    return tuple(power(argument) for argument in arguments)


def _of_numbers(sample: OperationSample, pairs: Sequence[tuple[Array, torch.Tensor]]) -> Comparison:
    num_equal = 0
    for number, (meant, computed) in enumerate(pairs):
        if meant.shape != tuple(computed.shape):
            return Comparison(is_exact=True, num_equal=0, wrong=f"shape {meant.shape} instead of {tuple(computed.shape)}")
        expected = elements_of(computed).astype(np.int64)
        is_finite = computed.isfinite().numpy()
        num_equal += int(is_finite.sum())
        wrong = np.argwhere((meant.astype(np.int64) != expected) & is_finite)
        if wrong.size:
            index = tuple(int(i) for i in wrong[0])
            text = f"output {number} is {meant[index]} and not {expected[index]} ({computed[index]}) at {list(index)}"
            return Comparison(is_exact=True, num_equal=num_equal, wrong=text)
    return Comparison(is_exact=True, num_equal=num_equal)


class _Pool:
    """Results, each as the verifier's elements beside torch's number, output by output.

    There are two elements, made by different functions: of 100,000 results, some pairs are one element of the field by chance.
    """

    def __init__(self) -> None:
        self._meant: list[Array] = []
        self._computed: list[Array] = []

    def add(self, meant: Sequence[Array], computed: Sequence[Array]) -> None:
        self._meant.extend(first * PRIME + second for first, second in (a.astype(np.int64).reshape([2, -1]) for a in meant))
        self._computed.extend(array.ravel() for array in computed)

    def disagreement(self, tolerance: float) -> tuple[int, str]:
        """How many pairs the verifier holds for equal, and a pair that torch does not."""
        meant = np.concatenate(self._meant) if self._meant else np.zeros(0, dtype=np.int64)
        computed = np.concatenate(self._computed) if self._computed else np.zeros(0)
        order = np.argsort(meant, kind="stable")
        meant, computed = meant[order], computed[order]
        left, right = computed[:-1], computed[1:]
        is_same = meant[:-1] == meant[1:]
        with np.errstate(invalid="ignore"):
            differs = np.abs(left - right) > tolerance * (1 + np.abs(left))
            is_same &= np.isfinite(left) & np.isfinite(right)  # proofs are about numbers, and infinity is none
        wrong = np.flatnonzero(is_same & differs)
        text = f"{left[wrong[0]]} and {right[wrong[0]]} should be equal" if wrong.size else ""
        return int(is_same.sum()), text


def _of_equalities(sample: OperationSample) -> Comparison:
    """Collects results under all changes, and compares the ones that must be equal."""
    pool, base = _Pool(), rounded(sample.inputs)
    for tensors in changed(base):
        if both := _both(sample, tensors):
            pool.add(*both)
    for other, together in summands(base):
        results = [_both(sample, tensors) for tensors in (base, other, together)]
        if all(results):
            (left, one), (right, two), (whole, three) = (result for result in results if result)
            pool.add(whole, three)
            with np.errstate(all="ignore"):
                sums = [a + b for a, b in zip(one, two, strict=True)]
            field = ExactField()
            total = [field.add(a, b) for a, b in zip(left, right, strict=True)]
            if all(np.isfinite(array).all() for array in (*sums, *three)):
                pool.add(total, sums)
    tolerance = 100 * tolerance_of([*sample.inputs.values(), *sample.outputs.values()])
    num_equal, wrong = pool.disagreement(tolerance)
    return Comparison(is_exact=False, num_equal=num_equal, wrong=wrong)


def _both(sample: OperationSample, tensors: Mapping[str, torch.Tensor]) -> tuple[list[Array], list[Array]] | None:
    """What the verifier and what torch makes of tensors; None if torch refuses them."""
    try:
        computed = _computed(sample, tensors, sample.node.arguments, sample.node.keywords)
    except (RuntimeError, IndexError):
        return None
    fields = [ExactField(salt) for salt in range(2)]
    both = [_meant(sample, tensors, field, sample.node.arguments, sample.node.keywords) for field in fields]
    for one, other in zip(both[0], computed, strict=True):
        if one.shape != tuple(other.shape):
            raise ValueError(f"the shape {one.shape} instead of {tuple(other.shape)}")
    meant = [np.stack(pair) for pair in zip(*both, strict=True)]
    return meant, [tensor.double().numpy() for tensor in computed]


def _meant(
    sample: OperationSample,
    tensors: Mapping[str, torch.Tensor],
    field: ExactField,
    arguments: Sequence[Argument],
    keywords: Sequence[tuple[str, Argument]],
) -> list[Array]:
    elements = {name: elements_of(tensor) for name, tensor in tensors.items()}
    results = NumbersAlgebra(field).compute(sample.node.op, arguments, keywords, elements, _shape(sample))
    return [result for name, result in zip(sample.node.outputs, results, strict=True) if name]


def _computed(
    sample: OperationSample,
    tensors: Mapping[str, torch.Tensor],
    arguments: Sequence[Argument],
    keywords: Sequence[tuple[str, Argument]],
) -> list[torch.Tensor]:
    results = compute(sample.node.op, arguments, keywords, tensors, _shape(sample))
    return [result for name, result in zip(sample.node.outputs, results, strict=True) if name]


def _shape(sample: OperationSample) -> tuple[int, ...]:
    return tuple(next(iter(sample.outputs.values())).shape)
