"""A model that goes through its layers several times and trains on the last time only, as AlphaFold2's recycling does."""

import torch
from torch import nn

from dyorc.planner.models.blocks import FeedForward


class _Recycled(nn.Module):
    def __init__(self, layers: int, hidden: int, passes: int) -> None:
        super().__init__()
        self.passes = passes
        self.layers = nn.ModuleList([FeedForward(hidden, 4 * hidden) for _ in range(layers)])

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        state = x
        for number in range(self.passes):
            is_last = number == self.passes - 1
            with torch.set_grad_enabled(is_last):
                for layer in self.layers:
                    state = state + layer(state)
                state = x + (state if is_last else state.detach())
        return (state - target).square().sum()


def recycled(*, layers: int = 4, hidden: int = 8, passes: int = 3, batch: int = 8) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds feed-forward layers that are passed several times, and a batch for them.

    Returns:
        The module, and inputs and targets, both `[batch, hidden]`.
    """
    x, target = torch.randn(2, batch, hidden).unbind(0)
    return _Recycled(layers, hidden, passes), (x, target)
