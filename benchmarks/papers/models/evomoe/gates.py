"""Gates: which experts each token goes to, and with which weight."""

from dataclasses import dataclass
from math import exp, log
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

_ACTIVE = 1e-3
"""Experts with a smaller weight do not see the token."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Where tokens go.

    Attributes:
        weights: `[tokens, experts]`; a token does not go where its weight is 0.
        balance: A scalar to add to the loss: 1 if all experts have equal loads, up to their number if one has all.
    """

    weights: torch.Tensor
    balance: torch.Tensor

    @property
    def num_active(self) -> float:
        """The mean number of experts that a token goes to: flops and bytes are proportional to it."""
        return float((self.weights != 0).sum() / len(self.weights))

    @property
    def load_entropy(self) -> float:
        """The entropy of the experts' loads, as a part of its largest value: 1 if all are equal, 0 if one has all."""
        load = (self.weights != 0).sum(0).double()
        share = load / load.sum()
        return float(-(share * share.clamp(min=1e-300).log()).sum() / log(len(share)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A temperature that falls.

    Attributes:
        start: In the beginning.
        end: In the end.
        decay_steps: After how many steps that is.
        kind: On a line, or by an equal factor in each step.
    """

    start: float = 2.0
    end: float = 0.5
    decay_steps: int = 5000
    kind: Literal["linear", "exponential"] = "linear"

    def at(self, step: int) -> float:
        """Returns the temperature of a step."""
        part = min(step / self.decay_steps, 1.0)
        if self.kind == "linear":
            return self.start + part * (self.end - self.start)
        return self.start * exp(part * log(self.end / self.start))


class DenseToSparseGate(nn.Module):
    """Sends tokens to all experts at first, and to fewer as its temperature falls; in the end, to the best one.

    The weights are a softmax with Gumbel noise; weights above a thousandth count. In evaluation, and after
    `hard_after_steps`, each token goes to the expert with the largest logit, with the softmax as its weight.

    Args:
        hidden: Extent of a token.
        experts: How many there are.
        schedule: Of the temperature.
        hard_after_steps: From which step on tokens go to one expert. `step` counts them; the training loop sets it.
    """

    def __init__(self, hidden: int, experts: int, schedule: Schedule, hard_after_steps: int) -> None:
        super().__init__()
        self.logits = nn.Linear(hidden, experts, bias=False)
        self.schedule = schedule
        self.hard_after_steps = hard_after_steps
        self.step = 0

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> Routing:
        """Routes `x`, `[tokens, hidden]`."""
        logits = self.logits(x)
        if not self.training or self.step >= self.hard_after_steps:
            return _best(logits)
        weights = functional.gumbel_softmax(logits, tau=self.schedule.at(self.step))
        return Routing(weights * (weights > _ACTIVE), _balance(functional.softmax(logits, dim=-1)))


class SwitchGate(nn.Module):
    """Sends each token to the expert with the largest logit (arXiv 2101.03961).

    Args:
        hidden: Extent of a token.
        experts: How many there are.
        capacity_factor: Experts take at most this multiple of an equal share, in the order of the tokens; None: all.
    """

    def __init__(self, hidden: int, experts: int, capacity_factor: float | None = 1.0) -> None:
        super().__init__()
        self.logits = nn.Linear(hidden, experts, bias=False)
        self.capacity_factor = capacity_factor

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> Routing:
        """Routes `x`, `[tokens, hidden]`."""
        best = _best(self.logits(x))
        if self.capacity_factor is None or not self.training:
            return best
        is_sent = best.weights != 0
        capacity = int(self.capacity_factor * len(x) / is_sent.shape[1]) or 1
        return Routing(best.weights * (is_sent & (is_sent.cumsum(0) <= capacity)), best.balance)


class HashGate(nn.Module):
    """Sends each token of the vocabulary always to the same expert (arXiv 2106.04426): drawn once, at random, in equal numbers.

    Args:
        vocabulary: How many tokens there are.
        experts: How many there are.
        seed: Of the draw.
    """

    def __init__(self, vocabulary: int, experts: int, seed: int = 0) -> None:
        super().__init__()
        order = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(seed))
        self.experts = experts
        self.register_buffer("expert_of", order % experts)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> Routing:
        """Routes `x`, `[tokens, hidden]`, by `tokens`, `[tokens]`.

        Raises:
            ValueError: There are no tokens.
        """
        if tokens is None:
            raise ValueError("a gate that hashes tokens needs them beside their vectors: layer(x, tokens)")
        weights = functional.one_hot(self.get_buffer("expert_of")[tokens], self.experts).to(x.dtype)
        return Routing(weights, _balance(weights))


class EveryGate(nn.Module):
    """Sends every token to every expert, with a softmax as weights: what a dense mixture computes, and costs."""

    def __init__(self, hidden: int, experts: int) -> None:
        super().__init__()
        self.logits = nn.Linear(hidden, experts, bias=False)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> Routing:
        """Routes `x`, `[tokens, hidden]`."""
        weights = functional.softmax(self.logits(x), dim=-1)
        return Routing(weights, _balance(weights))


def _best(logits: torch.Tensor) -> Routing:
    gates = functional.softmax(logits, dim=-1)
    is_best = functional.one_hot(gates.argmax(-1), gates.shape[-1]).to(gates.dtype)
    return Routing(gates * is_best, _balance(gates))


def _balance(gates: torch.Tensor) -> torch.Tensor:
    """Switch's loss of balance: experts times the sum of mean gate by share of tokens that have it as their best."""
    share = functional.one_hot(gates.argmax(-1), gates.shape[-1]).to(gates.dtype).mean(0)
    return gates.shape[-1] * (gates.mean(0) * share).sum()
