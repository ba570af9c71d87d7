"""A mixture of experts that sends tokens by products with one-hot tensors, as in GShard.

Each sample is its own group: an expert takes at most `capacity` tokens of each, and further ones pass by. All tensors have
fixed shapes then, and both the batch and the experts can be split over devices.

Source: gates of GShard (arXiv 2006.16668, algorithm 1; without its random second choice) and Switch (arXiv 2101.03961).
"""

from math import ceil
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from dyorc.planner.models.blocks import FeedForward

Gate = Literal["top2", "switch"]


class Experts(nn.Module):
    """Feed-forward parts; each token passes one or two of them.

    Args:
        hidden: Extent of a token.
        inner: Extent between the two products of an expert.
        experts: How many there are.
        gate: `top2` sends a token to the two best experts, `switch` to the best.
        capacity_factor: Room of the experts, as a multiple of what equal loads need.
    """

    def __init__(self, hidden: int, inner: int, *, experts: int = 4, gate: Gate = "top2", capacity_factor: float = 1.25) -> None:
        super().__init__()
        self.num_choices = 2 if gate == "top2" else 1
        self.capacity_factor = capacity_factor
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, hidden, inner) * hidden**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, hidden) * inner**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: `[batch, sequence, hidden]` both in and out; in the formulas b, s, d; e experts, c places, h inner."""
        combine = self._combine(functional.softmax(self.gate(x), dim=-1))
        dispatch = (combine > 0).to(x.dtype)
        sent = torch.einsum("bsd,bsec->becd", x, dispatch)
        inner = functional.gelu(torch.einsum("becd,edh->bech", sent, self.up))
        done = torch.einsum("bech,ehd->becd", inner, self.down)
        return torch.einsum("becd,bsec->bsd", done, combine)

    def _combine(self, gates: torch.Tensor) -> torch.Tensor:
        """From the gates `bse`, the weight of each token at each place of each expert, `bsec`."""
        num_experts = gates.shape[-1]
        capacity = ceil(self.capacity_factor * self.num_choices * gates.shape[1] / num_experts)
        _, chosen = torch.topk(gates, self.num_choices, dim=-1)
        taken = gates.new_zeros(gates.shape[0], 1, num_experts)
        parts: list[torch.Tensor] = []
        for experts in chosen.unbind(-1):
            mask = functional.one_hot(experts, num_experts).to(gates.dtype)
            place = torch.cumsum(mask, dim=1) - mask + taken  # first choices of all tokens come before second ones
            taken = taken + mask.sum(1, keepdim=True)
            mask = mask * (place < capacity)
            places = functional.one_hot((place * mask).sum(-1).long(), capacity).to(gates.dtype)
            parts.append((gates * mask).unsqueeze(-1) * places.unsqueeze(-2))
        combine = sum(parts[1:], start=parts[0])
        if self.num_choices == 1:  # Switch: the gate is the factor
            return combine
        return combine / combine.sum((-2, -1), keepdim=True).clamp(min=torch.finfo(gates.dtype).eps)


def with_experts(layers: int, hidden: int, inner: int, *, experts: int, gate: Gate, capacity_factor: float) -> list[nn.Module]:
    """Returns the feed-forward part of each layer: experts in every second one."""
    return [
        Experts(hidden, inner, experts=experts, gate=gate, capacity_factor=capacity_factor)
        if index % 2
        else FeedForward(hidden, inner)
        for index in range(layers)
    ]
