"""Llama: a decoder with RMS normalization, rotary positions, gated feed-forward parts, and queries that share keys and values."""

import torch
from torch import nn
from torch.nn import functional

from dyorc.planner.models.blocks import token_loss


class _RmsNorm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


def _rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotates each pair of features, one from each half, by its position's angle."""
    first, other = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - other * sin, other * cos + first * sin], dim=-1)


class _Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.head = hidden // heads
        self.group = heads // kv_heads
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        batch, sequence, hidden = x.shape
        q, k, v = (
            part(x).view(batch, sequence, -1, self.head).transpose(1, 2) for part in (self.q, self.k, self.v)
        )  # [batch, heads, sequence, head]
        q, k = _rotated(q, angles), _rotated(k, angles)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.group > 1)
        return self.out(mixed.transpose(1, 2).reshape(batch, sequence, hidden))


class _Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.norm_1 = _RmsNorm(hidden)
        self.attention = _Attention(hidden, heads, kv_heads)
        self.norm_2 = _RmsNorm(hidden)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_1(x), angles)
        inner = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class _Llama(nn.Module):
    angles: torch.Tensor

    def __init__(self, layers: list[nn.Module], hidden: int, vocabulary: int, angles: torch.Tensor) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.register_buffer("angles", angles)
        self.layers = nn.ModuleList(layers)
        self.norm = _RmsNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.angles)
        return token_loss(self.head(self.norm(x)), targets)


def llama(
    *,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    kv_heads: int = 2,
    inner: int = 48,
    vocabulary: int = 64,
    sequence: int = 16,
    batch: int = 8,
    base: float = 500_000.0,
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a Llama and a batch for it.

    Returns:
        The module, and tokens and targets, both `[batch, sequence]` of int64.
    """
    half = hidden // heads // 2
    angles = torch.arange(sequence).unsqueeze(-1) * base ** (-torch.arange(half) / half)
    parts: list[nn.Module] = [_Layer(hidden, heads, kv_heads, inner) for _ in range(layers)]
    tokens, targets = (torch.randint(0, vocabulary, (batch, sequence)) for _ in range(2))
    return _Llama(parts, hidden, vocabulary, angles), (tokens, targets)
