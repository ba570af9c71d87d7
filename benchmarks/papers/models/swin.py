"""Swin: attention inside windows, which every second layer moves by half a window; neighbours merge between stages."""

import torch
from torch import nn
from torch.nn import functional

from dyorc.planner.models.blocks import FeedForward, Layer, SelfAttention


class _WindowAttention(nn.Module):
    """Attention inside each window; without the mask that parts the windows which a shift joins over the image's border."""

    def __init__(self, hidden: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.window = window
        self.shift = shift
        self.attention = SelfAttention(hidden, heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, hidden = x.shape
        w = self.window
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        windows = x.view(batch, height // w, w, width // w, w, hidden).transpose(2, 3)
        mixed = self.attention(windows.reshape(-1, w * w, hidden)).view(batch, height // w, width // w, w, w, hidden)
        x = mixed.transpose(2, 3).reshape(batch, height, width, hidden)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class _Merge(nn.Module):
    """Makes one token of four neighbours."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * hidden)
        self.reduce = nn.Linear(4 * hidden, 2 * hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, hidden = x.shape
        fours = x.view(batch, height // 2, 2, width // 2, 2, hidden).permute(0, 1, 3, 2, 4, 5)
        return self.reduce(self.norm(fours.reshape(batch, height // 2, width // 2, 4 * hidden)))


class _Swin(nn.Module):
    def __init__(self, stages: list[nn.Module], hidden: int, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, stride=patch)
        self.stages = nn.Sequential(*stages)
        features = hidden * 2 ** sum(isinstance(stage, _Merge) for stage in stages)
        self.norm = nn.LayerNorm(features)
        self.head = nn.Linear(features, 10)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.stages(self.patches(images).permute(0, 2, 3, 1))
        return functional.cross_entropy(self.head(self.norm(x).mean((1, 2))), labels)


def swin(
    *,
    depths: tuple[int, ...] = (2, 2),
    hidden: int = 16,
    heads: int = 2,
    window: int = 4,
    patch: int = 4,
    size: int = 32,
    batch: int = 8,
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a Swin transformer and a batch for it.

    Args:
        depths: How many layers each stage has. Between stages, the image is halved, and heads and features double.
        hidden: Features in the first stage.
        heads: Of attention in the first stage.
        window: Height and width of a window, in tokens; it must divide the image in every stage.
        patch: Height and width of a token in the first stage, in pixels.
        size: Height and width of the images.
        batch: How many images.

    Returns:
        The module, and images `[batch, 3, size, size]` and labels `[batch]` of ten classes.
    """
    stages: list[nn.Module] = []
    for stage, depth in enumerate(depths):
        wide, many, tokens = hidden * 2**stage, heads * 2**stage, size // patch // 2**stage
        for index in range(depth):
            shift = window // 2 if index % 2 and tokens > window else 0
            stages.append(Layer(wide, _WindowAttention(wide, many, window, shift), FeedForward(wide, 4 * wide)))
        if stage + 1 < len(depths):
            stages.append(_Merge(wide))
    return _Swin(stages, hidden, patch), (torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,)))
