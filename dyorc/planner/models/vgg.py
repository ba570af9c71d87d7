"""VGG19 for small images: its features are one pixel per channel, which pooling spreads over 7x7 before the large products."""

import torch
from torch import nn
from torch.nn import functional


class _Vgg(nn.Module):
    def __init__(self, features: nn.Module, channels: int, inner: int) -> None:
        super().__init__()
        self.features = features
        self.pool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(channels * 49, inner), nn.ReLU(), nn.Linear(inner, inner), nn.ReLU(), nn.Linear(inner, 10)
        )

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.classifier(self.pool(self.features(images)).flatten(1)), labels)


def vgg19(
    *, width: int = 4, inner: int = 32, size: int = 32, batch: int = 8, convolutions: tuple[int, ...] = (2, 2, 4, 4, 4)
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Builds a VGG and a batch for it.

    Args:
        width: Channels of the first convolutions; 64 in the paper. They double with each stage, up to eight times as many.
        inner: Features of the large products; 4096 in the paper.
        size: Height and width of the images.
        batch: How many images.
        convolutions: How many convolutions each stage has; the pooling after each stage halves the image.

    Returns:
        The module, and images `[batch, 3, size, size]` and labels `[batch]` of ten classes.
    """
    parts: list[nn.Module] = []
    channels = 3
    for stage, count in enumerate(convolutions):
        for _ in range(count):
            wide = width * min(2**stage, 8)
            parts += [nn.Conv2d(channels, wide, 3, padding=1), nn.ReLU()]
            channels = wide
        parts.append(nn.MaxPool2d(2))
    return _Vgg(nn.Sequential(*parts), channels, inner), (torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,)))
