"""A decoder-only transformer, as in GPT-2: learned positions, normalization before each part, causal attention."""

import torch
from torch import nn

from dyorc.planner.models.blocks import FeedForward, Layer, SelfAttention, token_loss


class _Gpt(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, vocabulary: int, sequence: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Parameter(torch.randn(sequence, hidden) * 0.02)
        self.layers = nn.ModuleList(
            [Layer(hidden, SelfAttention(hidden, heads, is_causal=True), FeedForward(hidden, 4 * hidden)) for _ in range(layers)]
        )
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return token_loss(self.head(self.norm(x)), targets)


def gpt(
    *, layers: int = 2, hidden: int = 32, heads: int = 4, vocabulary: int = 64, sequence: int = 16, batch: int = 8
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a small GPT and a batch for it.

    Returns:
        The module, and tokens and targets, both `[batch, sequence]` of int64.
    """
    tokens, targets = torch.randint(0, vocabulary, (2, batch, sequence)).unbind(0)
    return _Gpt(layers, hidden, heads, vocabulary, sequence), (tokens, targets)
