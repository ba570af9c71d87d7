"""Experts that compute the tokens sent to them: all in one process, or some on each rank."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class LocalExperts(nn.ModuleList):
    """All experts. Tokens are picked by index: nothing is computed, or filled up, for experts that a token does not go to."""

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Returns for each token the weighted sum of its experts.

        Args:
            x: `[tokens, hidden]`.
            weights: `[tokens, experts]`; 0 where a token does not go.
        """
        total = torch.zeros_like(x)
        for index, expert in enumerate(self):
            chosen = weights[:, index].nonzero().squeeze(1)
            if len(chosen):
                total = total.index_add(0, chosen, expert(x[chosen]) * weights[chosen, index, None])
        return total


class ParallelExperts(nn.Module):
    """This rank's experts; all ranks have equally many. Tokens go to their experts' ranks and back, and none else.

    Gradients of this rank's experts are whole; those of what all ranks have alike, like the gate, must be summed over them.

    Args:
        experts: This rank's; rank r has the experts r * len(experts) and on.
        group: Of all ranks.

    Attributes:
        sent_bytes: What this rank sent to others in its last forward pass.
    """

    def __init__(self, experts: Sequence[nn.Module], group: dist.ProcessGroup) -> None:
        super().__init__()
        self.experts = nn.ModuleList(experts)
        self.sent_bytes = 0
        self._group = group

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Returns for each token of this rank the weighted sum of its experts, wherever they are.

        Args:
            x: `[tokens, hidden]`, this rank's.
            weights: `[tokens, experts]`, for the experts of all ranks.
        """
        num_ranks, rank = dist.get_world_size(self._group), dist.get_rank(self._group)
        expert, token = weights.t().nonzero().unbind(1)  # in the order of experts, so of ranks
        counts = (weights != 0).sum(0)
        others = torch.empty_like(counts)  # for each rank, how many tokens it sends to each expert here
        dist.all_to_all_single(others, counts, group=self._group)
        sends = counts.view(num_ranks, -1).sum(1).tolist()
        gets = others.view(num_ranks, -1).sum(1).tolist()
        outward = x[token]
        arrived = _Exchange.apply(outward, sends, gets, self._group)
        self.sent_bytes = (len(outward) - sends[rank]) * x.shape[1] * x.element_size()
        number = torch.arange(len(self.experts)).repeat(num_ranks).repeat_interleave(others)
        done = torch.zeros_like(arrived)
        for index, module in enumerate(self.experts):
            chosen = (number == index).nonzero().squeeze(1)
            # Computed even without tokens, so that every parameter has a gradient on every rank.
            done = done.index_add(0, chosen, module(arrived[chosen]))
        back = _Exchange.apply(done, gets, sends, self._group)
        return torch.zeros_like(x).index_add(0, token, back * weights[token, expert, None])


class _Exchange(torch.autograd.Function):
    """Sends rows to ranks, in order, and their gradients back."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, sends: list[int], gets: list[int], group: dist.ProcessGroup) -> torch.Tensor:
        """Returns the rows that other ranks sent here, in the order of ranks."""
        ctx.counts = gets, sends, group
        return _exchanged(rows, sends, gets, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the gradients of the rows that this rank sent."""
        return _exchanged(gradient, *ctx.counts), None, None, None


def _exchanged(rows: torch.Tensor, sends: list[int], gets: list[int], group: dist.ProcessGroup) -> torch.Tensor:
    received = rows.new_empty(sum(gets), rows.shape[1])
    dist.all_to_all_single(received, rows.contiguous(), gets, sends, group=group)
    return received
