"""BERT, an encoder of text, and BERT-MoE, in which every second layer has experts."""

import torch
from torch import nn

from dyorc.planner.models.blocks import FeedForward, Layer, NormPlace, SelfAttention, token_loss
from dyorc.planner.models.moe import Gate, with_experts


class _Bert(nn.Module):
    def __init__(self, hidden: int, heads: int, vocabulary: int, sequence: int, parts: list[nn.Module]) -> None:
        super().__init__()
        norm: NormPlace = "after"
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Parameter(torch.randn(sequence, hidden) * 0.02)
        self.norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList([Layer(hidden, SelfAttention(hidden, heads), part, norm) for part in parts])
        self.decoder = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.tokens(tokens) + self.positions)
        for layer in self.layers:
            x = layer(x)
        return token_loss(self.decoder(x), targets)


def bert(
    *,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    inner: int | None = None,
    vocabulary: int = 64,
    sequence: int = 16,
    batch: int = 8,
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a BERT that is trained on the cross-entropy of all its tokens, and a batch for it.

    Returns:
        The module, and tokens and targets, both `[batch, sequence]` of int64.
    """
    parts: list[nn.Module] = [FeedForward(hidden, inner or 4 * hidden) for _ in range(layers)]
    return _Bert(hidden, heads, vocabulary, sequence, parts), _text(vocabulary, batch, sequence)


def bert_moe(
    *,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    inner: int | None = None,
    vocabulary: int = 64,
    sequence: int = 16,
    batch: int = 8,
    experts: int = 4,
    gate: Gate = "top2",
    capacity_factor: float = 1.25,
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a BERT with experts in every second layer, and a batch for it.

    Returns:
        The module, and tokens and targets, both `[batch, sequence]` of int64.
    """
    inner = inner or 4 * hidden
    parts = with_experts(layers, hidden, inner, experts=experts, gate=gate, capacity_factor=capacity_factor)
    return _Bert(hidden, heads, vocabulary, sequence, parts), _text(vocabulary, batch, sequence)


def _text(vocabulary: int, batch: int, sequence: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randint(0, vocabulary, (batch, sequence)) for _ in range(2))
