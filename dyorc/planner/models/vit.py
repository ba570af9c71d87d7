"""ViT, an encoder of images, and ViT-MoE, in which every second layer has experts."""

import torch
from torch import nn
from torch.nn import functional

from dyorc.planner.models.blocks import FeedForward, Layer, SelfAttention
from dyorc.planner.models.moe import Gate, with_experts


class _Vit(nn.Module):
    def __init__(self, hidden: int, heads: int, patch: int, num_patches: int, parts: list[nn.Module]) -> None:
        super().__init__()
        self.patch = patch
        self.patches = nn.Linear(3 * patch * patch, hidden)
        self.positions = nn.Parameter(torch.randn(num_patches, hidden) * 0.02)
        self.layers = nn.ModuleList([Layer(hidden, SelfAttention(hidden, heads), part) for part in parts])
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, 10)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = images.shape
        p = self.patch
        squares = images.view(batch, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5)
        x = self.patches(squares.reshape(batch, -1, channels * p * p)) + self.positions
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.head(self.norm(x).mean(1)), labels)


def vit(
    *, layers: int = 2, hidden: int = 32, heads: int = 4, inner: int | None = None, size: int = 32, patch: int = 8, batch: int = 8
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a ViT that classifies square images by the mean of its tokens, and a batch for it.

    Returns:
        The module, and images `[batch, 3, size, size]` and labels `[batch]` of ten classes.
    """
    parts: list[nn.Module] = [FeedForward(hidden, inner or 4 * hidden) for _ in range(layers)]
    return _Vit(hidden, heads, patch, (size // patch) ** 2, parts), _images(size, batch)


def vit_moe(
    *,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    inner: int | None = None,
    size: int = 32,
    patch: int = 8,
    batch: int = 8,
    experts: int = 4,
    gate: Gate = "top2",
    capacity_factor: float = 1.25,
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a ViT with experts in every second layer, and a batch for it.

    Returns:
        The module, and images `[batch, 3, size, size]` and labels `[batch]` of ten classes.
    """
    inner = inner or 4 * hidden
    parts = with_experts(layers, hidden, inner, experts=experts, gate=gate, capacity_factor=capacity_factor)
    return _Vit(hidden, heads, patch, (size // patch) ** 2, parts), _images(size, batch)


def _images(size: int, batch: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, 3, size, size, dtype=torch.get_default_dtype()), torch.randint(0, 10, (batch,))
