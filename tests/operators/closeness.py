"""Whether two tensors are equal within rounding; NaN equals NaN."""

from collections.abc import Iterable

import torch

_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def tolerance_of(tensors: Iterable[torch.Tensor]) -> float:
    """Returns the tolerance of the coarsest type, relative to the largest element."""
    return max((_TOLERANCES.get(tensor.dtype, 0.0) for tensor in tensors), default=0.0)


def largest(tensors: Iterable[torch.Tensor]) -> float:
    """Returns the largest finite magnitude; at least 1."""
    found = 1.0
    for tensor in tensors:
        numbers = tensor.detach().to(torch.float64).abs().flatten()
        numbers = numbers[numbers.isfinite()]
        found = max(found, float(numbers.max()) if numbers.numel() else 0.0)
    return found


def difference(actual: torch.Tensor, expected: torch.Tensor, *, tolerance: float | None = None) -> str:
    """Returns how a tensor differs from what is expected; nothing if it is equal.

    Args:
        actual: What came out.
        expected: What should have.
        tolerance: The largest difference of two elements; that of the type by default.
    """
    if actual.shape != expected.shape:
        return f"has the shape {list(actual.shape)} instead of {list(expected.shape)}"
    if actual.dtype != expected.dtype:
        return f"is {actual.dtype} instead of {expected.dtype}"
    if tolerance is None:
        tolerance = tolerance_of([expected]) * largest([expected])
    if expected.dtype.is_floating_point:
        actual, expected = actual.double(), expected.double()
    else:
        tolerance = 0.0
    is_close = torch.isclose(actual, expected, rtol=0.0, atol=tolerance, equal_nan=True)
    if bool(is_close.all()):
        return ""
    where = (~is_close).nonzero()[0].tolist()
    return f"is {actual[tuple(where)]} instead of {expected[tuple(where)]} at {where}"
