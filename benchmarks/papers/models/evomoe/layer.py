"""The layer: a gate and experts, which may begin as one that is shared."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.papers.models.evomoe.experts import LocalExperts
from benchmarks.papers.models.evomoe.gates import Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """How the experts that come of one differ from it: the paper says only that they do.

    Attributes:
        masked_ratio: The part of each weight that is set to 0, drawn for each expert.
        noise: The spread of random numbers that are added, as a multiple of the weight's own.
        seed: Of both.
    """

    masked_ratio: float = 0.1
    noise: float = 0.0
    seed: int = 0


class MixtureLayer(nn.Module):
    """A gate before experts.

    Args:
        gate: Called with `[tokens, hidden]` and the tokens' numbers.
        experts: Called with `[tokens, hidden]` and weights, `[tokens, experts]`.

    Attributes:
        routing: What the gate said of the last batch; its `balance` is for the loss.
    """

    def __init__(self, gate: nn.Module, experts: nn.Module) -> None:
        super().__init__()
        self.gate = gate
        self.experts = experts
        self.routing: Routing | None = None

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Shapes: `[..., hidden]` both in and out; `tokens` has one extent less."""
        flat = x.flatten(0, -2)
        routing: Routing = self.gate(flat, None if tokens is None else tokens.flatten())
        self.routing = routing
        return self.experts(flat, routing.weights).view_as(x)


class EvolvingExperts(nn.Module):
    """One expert for all tokens, until `spawn` makes many of it.

    Args:
        expert: The one.
    """

    def __init__(self, expert: nn.Module) -> None:
        super().__init__()
        self.expert: nn.Module | None = expert
        self.mixture: MixtureLayer | None = None

    def spawn(self, num_experts: int, make_gate: Callable[[], nn.Module], diversity: Diversity) -> None:
        """Makes experts of the one, each a little different, and puts a gate before them.

        Args:
            num_experts: How many.
            make_gate: Makes the gate.
            diversity: How they differ.

        Raises:
            RuntimeError: It has been done.
        """
        if self.expert is None:
            raise RuntimeError("the experts have been spawned already")
        generator = torch.Generator().manual_seed(diversity.seed)
        experts = LocalExperts(_different(self.expert, diversity, generator) for _ in range(num_experts))
        self.mixture, self.expert = MixtureLayer(make_gate(), experts), None

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Shapes: `[..., hidden]` both in and out."""
        if self.mixture is not None:
            return self.mixture(x, tokens)
        assert self.expert is not None
        return self.expert(x)


@torch.no_grad()
def _different(expert: nn.Module, diversity: Diversity, generator: torch.Generator) -> nn.Module:
    copied = copy.deepcopy(expert)
    for weight in copied.parameters():
        if weight.dim() < 2:
            continue
        if diversity.noise:
            weight += diversity.noise * weight.std() * torch.randn(weight.shape, generator=generator).to(weight)
        weight[torch.rand(weight.shape, generator=generator) < diversity.masked_ratio] = 0.0
    return copied
