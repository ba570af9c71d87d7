"""Parts that the transformers here share: attention, feed-forward, and a layer of both."""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional

NormPlace = Literal["before", "after"]
"""Where a layer normalizes: before each of its parts, as in GPT-2 and ViT, or after the sum, as in BERT."""


class SelfAttention(nn.Module):
    """Attention of a sequence to itself, with as many heads as may be split over devices.

    Query, key and value of one head lie together in the weight, so that a part of its rows is whole heads.
    """

    def __init__(self, hidden: int, heads: int, *, is_causal: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.is_causal = is_causal
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: `[batch, sequence, hidden]` both in and out."""
        batch, sequence, hidden = x.shape
        qkv = self.qkv(x).view(batch, sequence, self.heads, 3, hidden // self.heads)
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, sequence, hidden))


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: `[..., hidden]` both in and out."""
        return self.down(functional.gelu(self.up(x)))


class Layer(nn.Module):
    """Attention, then a feed-forward part, each added to what goes in.

    Args:
        hidden: Extent of the normalized dimension.
        attention: From `[batch, sequence, hidden]` to the same.
        feed_forward: From `[batch, sequence, hidden]` to the same.
        norm: Where to normalize.
    """

    def __init__(self, hidden: int, attention: nn.Module, feed_forward: nn.Module, norm: NormPlace = "before") -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.norm = norm
        self.norm_1 = nn.LayerNorm(hidden)
        self.norm_2 = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: `[batch, sequence, hidden]` both in and out."""
        if self.norm == "before":
            x = x + self.attention(self.norm_1(x))
            return x + self.feed_forward(self.norm_2(x))
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self.feed_forward(x))


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of all tokens, from `[batch, sequence, vocabulary]` and `[batch, sequence]`."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
