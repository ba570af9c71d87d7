"""A U-Net as in diffusion: it predicts the noise in an image, with group normalization and connections past the narrow middle."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional


class _Block(nn.Module):
    def __init__(self, channels: int, wide: int, groups: int) -> None:
        super().__init__()
        self.norm_1 = nn.GroupNorm(groups, channels)
        self.conv_1 = nn.Conv2d(channels, wide, 3, padding=1)
        self.norm_2 = nn.GroupNorm(groups, wide)
        self.conv_2 = nn.Conv2d(wide, wide, 3, padding=1)
        self.past = nn.Conv2d(channels, wide, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.conv_1(functional.silu(self.norm_1(x)))
        return self.past(x) + self.conv_2(functional.silu(self.norm_2(inner)))


class _Unet(nn.Module):
    def __init__(self, widths: list[int], groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, widths[0], 3, padding=1)
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList([_Block(narrow, wide, groups) for narrow, wide in pairs])
        self.middle = _Block(widths[-1], widths[-1], groups)
        self.up = nn.ModuleList([_Block(2 * wide, narrow, groups) for narrow, wide in reversed(pairs)])
        self.last = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, images: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        x = self.first(images + noise)
        passed: list[torch.Tensor] = []
        for block in self.down:
            x = block(x)
            passed.append(x)
            x = functional.avg_pool2d(x, 2)
        x = self.middle(x)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, passed.pop()], dim=1))
        return functional.mse_loss(self.last(x), noise)


def unet(
    *, width: int = 8, stages: int = 2, groups: int = 4, size: int = 16, batch: int = 8
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a U-Net and a batch for it.

    Args:
        width: Channels at the full size; each stage doubles them.
        stages: How often the image is halved.
        groups: Of the normalization.
        size: Height and width of the images.
        batch: How many images.

    Returns:
        The module, and images and noise, both `[batch, 3, size, size]`.
    """
    widths = [width * 2**stage for stage in range(stages + 1)]
    return _Unet(widths, groups), (torch.randn(batch, 3, size, size), torch.randn(batch, 3, size, size))
