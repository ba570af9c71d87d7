"""A small convolutional network with parallel branches, in the manner of Inception (arXiv 1409.4842)."""

import torch
from torch import nn


class _Block(nn.Module):
    """Four branches that read the same and are joined: 1x1, 3x3, two 3x3 one after the other, and 1x1 after pooling."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, width, 1)
        self.three = nn.Sequential(nn.Conv2d(channels, width, 1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        self.five = nn.Sequential(
            nn.Conv2d(channels, width, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.pooled = nn.Conv2d(channels, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.pooled(nn.functional.max_pool2d(x, 3, stride=1, padding=1))
        return torch.cat([self.one(x), self.three(x), self.five(x), pooled], dim=1).relu()


class _Inception(nn.Module):
    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4 * width, 3, padding=1)
        self.blocks = nn.Sequential(*(_Block(4 * width, width) for _ in range(blocks)))
        self.head = nn.Linear(4 * width, 10)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        features = self.blocks(self.stem(images).relu()).mean(dim=(2, 3))
        return nn.functional.cross_entropy(self.head(features), labels)


def inception(*, blocks: int = 2, width: int = 8, size: int = 16, batch: int = 8) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a network of blocks with four branches each.

    Args:
        blocks: How many.
        width: Channels of each branch.
        size: Height and width of the images.
        batch: How many images.

    Returns:
        The module, and images `[batch, 3, size, size]` and labels `[batch]` of ten classes.
    """
    return _Inception(blocks, width), (torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,)))
