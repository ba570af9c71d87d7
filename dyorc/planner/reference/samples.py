"""Other weights and inputs for a module: what agrees on its example alone may agree by chance, or because all is zero."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from dyorc.planner.program.example import Example
from dyorc.planner.program.flat_module import attributes_of, eager

_LARGEST_NUMBERS = (64, 16, 8, 4, 2)
"""Bounds that are tried for inputs of whole numbers, such as tokens and labels, whose own values are all the same."""


def randomize(module: nn.Module, generator: torch.Generator) -> None:
    """Changes the weights of a module, in place: zeros, with which many models begin, hide what is multiplied by them.

    Signs and infinities of buffers stay, since variances and masks live on them; whole numbers and truth values stay as they are.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(parameter.double() * (1 + 0.1 * noise) + 0.02 * noise.roll(1))
        for buffer in module.buffers():
            if buffer.is_floating_point():
                factor = 1 + 0.1 * torch.rand(buffer.shape, generator=generator, dtype=torch.float64)
                buffer.copy_(buffer.double() * factor)


def other_example(example: Example, generator: torch.Generator, accepts: Callable[[Example], bool]) -> Example:
    """Returns a call like the example: its elements in another order, or random ones where all are the same.

    Args:
        example: It stays.
        generator: Draws.
        accepts: Whether the module runs on a call: the largest token or label is not known.
    """
    for index, tensor in enumerate(example.tensors):
        for candidate in _candidates(tensor, generator):
            other = example.with_tensors([*example.tensors[:index], candidate, *example.tensors[index + 1 :]])
            if accepts(other):
                example = other
                break
    return example


def _candidates(tensor: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
    if tensor.numel() == 0:
        return []
    if bool((tensor != tensor.flatten()[0]).any()):
        order = torch.randperm(tensor.numel(), generator=generator)
        return [tensor.flatten()[order].reshape(tensor.shape)]
    if tensor.is_floating_point():
        return [torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)]
    if tensor.dtype == torch.bool:
        return [tensor ^ (torch.rand(tensor.shape, generator=generator) < 0.25)]
    return [torch.randint(0, bound, tensor.shape, generator=generator).to(tensor.dtype) for bound in _LARGEST_NUMBERS]


def _materialized(tensor: torch.Tensor, generator: torch.Generator, *, is_buffer: bool) -> torch.Tensor:
    """Returns a tensor with elements for one on `meta`: small random numbers; for buffers, positive ones, and zeros and ones."""
    if tensor.is_floating_point():
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        return ((0.5 + noise.abs()) if is_buffer else 0.1 * noise).to(tensor.dtype)
    return (torch.ones if tensor.dtype == torch.bool else torch.zeros)(tensor.shape, dtype=tensor.dtype)


def with_elements(module: nn.Module) -> nn.Module:
    """Returns a copy of a module on the CPU; what lies on `meta` gets random elements."""
    generator = torch.Generator().manual_seed(0)
    known: dict[int, Any] = {id(value): value.detach().cpu().clone() for value in attributes_of(module) if not value.is_leaf}
    for tensor, is_buffer in [*((p, False) for p in module.parameters()), *((b, True) for b in module.buffers())]:
        data = tensor.detach()
        copy = _materialized(data, generator, is_buffer=is_buffer) if data.is_meta else data.cpu().clone()
        known[id(tensor)] = copy if is_buffer else nn.Parameter(copy, requires_grad=tensor.requires_grad)
    return eager(deepcopy(module, known))


def example_with_elements(example: Example) -> Example:
    """Returns an example on the CPU; what lies on `meta` gets random elements."""
    generator = torch.Generator().manual_seed(0)
    return example.with_tensors(
        [_materialized(t, generator, is_buffer=False) if t.is_meta else t.detach().cpu() for t in example.tensors]
    )
