"""A program of few nodes, for searches that try everything."""

import torch
from torch import nn


class Tiny(nn.Module):
    """A product, a rectifier and a sum."""

    def __init__(self, num_out: int, num_in: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(num_in, num_out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the sum of what is positive."""
        return self.linear(x).relu().sum()


class Scale(nn.Module):
    """A sum of scaled numbers: so small that every plan can be simulated."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the sum."""
        return (x * self.weight).sum()
