"""Finds tensors of a module that lie in the same memory: a program has each as a value of its own."""

from collections.abc import Iterable, Sequence

import torch
from torch import nn


def overlapping(module: nn.Module, inputs: Sequence[torch.Tensor], changed: Iterable[str]) -> tuple[str, str] | None:
    """Returns a tensor that a step changes and another that lies in the same memory, by name; None if no two do.

    One tensor with two names is one value, and no such pair. What lies on `meta` lies nowhere.

    Args:
        module: Its parameters, buffers, and the tensors that are attributes of it and of its parts.
        inputs: With which it is called.
        changed: The names of what the step changes.
    """
    tensors = dict[str, torch.Tensor]([*module.named_parameters(), *module.named_buffers()])
    for prefix, part in module.named_modules():
        attributes = {key: value for key, value in vars(part).items() if isinstance(value, torch.Tensor)}
        tensors |= {".".join(filter(None, (prefix, key))): value for key, value in attributes.items()}
    given = {f"input {number}": tensor.detach() for number, tensor in enumerate(inputs)}
    for name in changed:
        for other, tensor in {**tensors, **given}.items():
            if name in tensors and tensor is not tensors[name] and _meet(tensors[name], tensor):
                return name, other
    return None


def _meet(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    if tensor.is_meta or other.is_meta or tensor.device != other.device or not tensor.numel() or not other.numel():
        return False
    (first, end), (start, last) = _extent(tensor), _extent(other)
    return first < last and start < end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """From the first byte to that after the last; what lies between may be of others."""
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
