"""One model of the zoo."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

Inputs: TypeAlias = dict[str, torch.Tensor] | tuple[torch.Tensor, ...]
"""What a module is called with: by name, or by position."""
Build: TypeAlias = Callable[[], tuple[nn.Module, Inputs]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A model that can be built.

    Attributes:
        name: The library and the model's own name there.
        build: Returns a module in training mode with new parameters, and example inputs with the batch first.
    """

    name: str
    build: Build

    @property
    def library(self) -> str:
        """The name of its library."""
        return self.name.partition("/")[0]
