"""Makes a training step of any model: a module that takes tensors alone and returns one scalar."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from tests.zoo.models.entry import Entry

SPREAD = 0.1
"""Of what is added to each parameter: some begin as zero or one, and would hide what is multiplied by them."""


class WithLoss(nn.Module):
    """Returns the model's own loss if it has one, and otherwise a scalar that depends on every element of every result.

    Args:
        model: The model.
        names: The inputs' names, or none where it is called by position.
    """

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Calls the model.

        Args:
            inputs: In the order of the names.
        """
        if self.names:
            return loss_of(self.model(**dict(zip(self.names, inputs, strict=True))))
        return loss_of(self.model(*inputs))


def loss_of(result: object) -> torch.Tensor:
    """Returns the loss in what a model returned, or makes one."""
    loss = getattr(result, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.dim() == 0:
        return loss
    losses = [(tensor.sin() + tensor.square()).mean() for tensor in _tensors(result) if tensor.requires_grad]
    if not losses:
        raise TypeError(f"no result of {type(result).__name__} depends on a parameter")
    return sum(losses[1:], losses[0])


def _tensors(result: object) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        if result.is_floating_point():
            yield result
    elif isinstance(result, Mapping):
        for part in result.values():
            yield from _tensors(part)
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _tensors(part)
    elif hasattr(result, "__dict__"):  # such as the distribution that an autoencoder returns
        yield from _tensors(vars(result))


def step_of(entry: Entry, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[WithLoss, tuple[torch.Tensor, ...]]:
    """Builds a model's training step, and its inputs, in one type.

    Args:
        entry: Which.
        dtype: Of all that is a floating number.
        seed: Of parameters and inputs.
    """
    torch.manual_seed(seed)
    model, inputs = entry.build()
    names = tuple(inputs) if isinstance(inputs, dict) else ()
    tensors: Any = inputs.values() if isinstance(inputs, dict) else inputs
    module = WithLoss(model, names).to(dtype)
    _set_dtype(model, dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += SPREAD * torch.randn_like(parameter)
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):  # pyright: ignore[reportPrivateUsage]
            part.p = 0.0
        elif type(part).__name__ in ("DropPath", "StochasticDepth"):
            for name in ("p", "drop_prob"):
                with suppress(AttributeError):
                    setattr(part, name, getattr(part, name) * 0.0)
    return module, tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors)


def _set_dtype(model: nn.Module, dtype: torch.dtype) -> None:
    config = getattr(model, "config", None)
    if hasattr(config, "dtype"):
        with suppress(AttributeError):
            config.dtype = dtype  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
