"""What torch itself computes of a training step, and how far other results are from that."""

from collections.abc import Mapping
from copy import deepcopy
from typing import TypeAlias

import torch
from torch import nn

from dyorc.planner.program import TensorProgram, ValueKind
from dyorc.planner.program.randomness import CounterBased

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""The largest error that is allowed, by the narrowest type that the step computes with."""
Results: TypeAlias = Mapping[str, Mapping[str, torch.Tensor]]
"""`loss`, `gradients` and `buffers`, each by name."""
_FLOOR = 1e-2
"""A tensor that is smaller than this part of the largest of its kind is compared with that: it may be zero but for rounding."""


def reference(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Results:
    """Runs one training step by torch, on a copy of the module.

    Returns:
        Its results; parameters without a gradient are left out.
    """
    module = deepcopy(module)
    with CounterBased():  # some drop labels, or layers, whatever their configuration says
        loss = module(*(tensor.clone() for tensor in inputs))
        loss.backward()
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {"loss": {"loss": loss.detach()}, "gradients": gradients, "buffers": dict(module.named_buffers())}


def of_program(program: TensorProgram, results: Mapping[str, torch.Tensor], sources: Mapping[str, torch.Tensor]) -> Results:
    """Returns the results of a program or a plan in the form of `reference`.

    Args:
        program: What was run.
        results: By the names of the program's values.
        sources: What it was run with: buffers that it does not change keep their values.
    """
    buffers = {name: sources[name] for name, value in program.values.items() if value.kind is ValueKind.BUFFER}
    return {
        "loss": {"loss": results[program.loss]},
        "gradients": {name: results[gradient] for name, gradient in program.gradients.items()},
        "buffers": buffers | {name: results[value] for name, value in program.updates.items()},
    }


def narrowest(program: TensorProgram) -> str:
    """The floating type with the fewest digits of all that the program computes with."""
    present = {value.dtype for value in program.values.values()}
    return next(dtype for dtype in reversed(TOLERANCES) if dtype in present)


def largest_error(expected: Results, results: Results) -> tuple[float, str]:
    """Returns the largest difference of any element, in proportion to its tensor's largest element, and that tensor's name.

    Infinite if a gradient is missing, or a shape or a type is not that of torch. Buffers that the program does not read are not
    compared; see `of_program`.
    """
    worst = (0.0, "")
    for kind, tensors in expected.items():
        floor = _FLOOR * max((_size(tensor) for tensor in tensors.values()), default=0.0)
        for name, tensor in tensors.items():
            other = results[kind].get(name)
            if other is None and kind == "buffers":
                continue
            error = float("inf") if other is None else _error(tensor, other, floor)
            worst = max(worst, (error, f"{kind[:-1] if kind != 'loss' else kind} {name}"))
    for name in results["gradients"].keys() - expected["gradients"].keys():
        if _size(results["gradients"][name]) > 0:  # torch has none, and zero is what none means
            worst = (float("inf"), f"gradient {name}")
    return worst


def _size(tensor: torch.Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() and tensor.is_floating_point() else 0.0


def _error(expected: torch.Tensor, other: torch.Tensor, floor: float) -> float:
    if expected.shape != other.shape or expected.dtype != other.dtype:
        return float("inf")
    if not expected.is_floating_point():
        return 0.0 if torch.equal(expected, other) else float("inf")
    if expected.numel() == 0:
        return 0.0
    difference = float((expected.detach() - other.detach()).abs().max())
    scale = max(_size(expected), floor)
    relative = difference / scale if scale else difference
    return relative if relative == relative else float("inf")  # NaN equals nothing
