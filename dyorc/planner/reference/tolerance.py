"""When results of two computations count as equal: by the coarsest type that a result passed through on its way.

A result in float32 is no better than the bfloat16 that it was made of.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dyorc.planner.program.graph import TensorProgram, ValueKind

TOLERANCES: Mapping[str, float] = {"float64": 1e-8, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""By type: the largest difference of an element, relative to the largest one of its tensor. Whole numbers must be identical."""
_FLOOR_RATIO = 1e-3
"""Of the largest element of all results: tensors whose elements are smaller are measured by this.

A gradient that is zero on paper, such as that of a bias before a normalization, is rounding noise on both sides.
"""

_MAX_SHOWN = 10
"""Differences that people are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How far results are from those expected.

    Attributes:
        differences: For each result that is not equal, what is different, for people.
        largest: The largest relative difference of all results; infinite if one is missing, or is not a number on one side only.
        num_results: How many were compared.
    """

    differences: Mapping[str, str]
    largest: float
    num_results: int

    @property
    def is_equal(self) -> bool:
        """Whether all are equal within the tolerances."""
        return not self.differences

    def __str__(self) -> str:
        if self.is_equal:
            return f"all {self.num_results:,} results are equal; the largest relative difference is {self.largest:.1e}"
        lines = [f"  {name} {difference}" for name, difference in self.differences.items()]
        more = [f"  and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
        return "\n".join([f"{len(lines):,} of {self.num_results:,} results differ:", *lines[:_MAX_SHOWN], *more])


def judge(
    expected: Mapping[str, torch.Tensor], results: Mapping[str, torch.Tensor], types: Mapping[str, str] | None = None
) -> Judgement:
    """Compares results by name.

    Args:
        expected: What they should be.
        results: What they are, of any type that the expected ones were rounded to.
        types: The coarsest type that a result was rounded to on its way, for some or all of them.
    """
    types = types or {}
    floats = [tensor for tensor in expected.values() if tensor.is_floating_point()]
    floor = _FLOOR_RATIO * max(map(_magnitude, floats), default=0.0)
    differences: dict[str, str] = {}
    largest = 0.0
    for name, tensor in expected.items():
        if name not in results:
            differences[name], error = "is missing", float("inf")
        else:
            tolerance = max(TOLERANCES.get(types.get(name, ""), 0.0), _tolerance(tensor, results[name]))
            error = _error(tensor, results[name], floor)
            if not error <= tolerance:
                differences[name] = _description(tensor, results[name], error, tolerance)
        largest = max(largest, error)
    return Judgement(differences=differences, largest=largest, num_results=len(expected))


def _tolerance(expected: torch.Tensor, result: torch.Tensor) -> float:
    """That of the coarser type."""
    return max(TOLERANCES.get(str(tensor.dtype).removeprefix("torch."), 0.0) for tensor in (expected, result))


def _error(expected: torch.Tensor, result: torch.Tensor, floor: float) -> float:
    if expected.shape != result.shape or expected.is_floating_point() != result.is_floating_point():
        return float("inf")
    if not expected.is_floating_point():
        return 0.0 if torch.equal(expected, result.to(expected.dtype)) else float("inf")
    wanted, actual = expected.double(), result.double()
    is_same = (wanted == actual) | (wanted.isnan() & actual.isnan())  # infinities of one sign are the same, too
    if bool(is_same.all()):
        return 0.0
    difference = torch.where(is_same, 0.0, (wanted - actual).abs()).max()
    scale = max(_magnitude(expected), floor)
    return float("inf") if difference.isnan() or scale == 0 else float(difference) / scale


def _magnitude(tensor: torch.Tensor) -> float:
    finite = tensor.detach().double()
    finite = finite[finite.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _description(expected: torch.Tensor, result: torch.Tensor, error: float, tolerance: float) -> str:
    if expected.shape != result.shape:
        return f"has the shape {list(result.shape)}; expected {list(expected.shape)}"
    if expected.dtype != result.dtype and not (expected.is_floating_point() and result.is_floating_point()):
        return f"is of type {result.dtype}; expected {expected.dtype}"
    wanted, actual = expected.double(), result.double()
    wrong = torch.where(
        (wanted == actual) | (wanted.isnan() & actual.isnan()), 0.0, (wanted - actual).abs().nan_to_num(float("inf"))
    )
    at = int(wrong.flatten().argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(at), expected.shape)]
    there = f"element {index} is " if index else "is "
    share = "" if error == float("inf") else f", a difference of {error:.3g} where {tolerance:g} is allowed"
    return f"{there}{float(actual.flatten()[at]):.9g}; expected {float(wanted.flatten()[at]):.9g}{share}"


def coarsest_types(program: TensorProgram) -> dict[str, str]:
    """Returns for each value of a program, by name, the type with the widest tolerance among all that it depends on."""
    coarsest = {name: value.dtype for name, value in program.values.items() if value.kind is not ValueKind.ACTIVATION}
    for node in program.nodes:
        read = [coarsest[name] for name in node.inputs]
        for output in filter(None, node.outputs):
            coarsest[output] = max([program.values[output].dtype, *read], key=lambda dtype: TOLERANCES.get(dtype, 0.0))
    return coarsest
