"""Example inputs: eight samples, eight tokens, 32 pixels each way."""

import torch

BATCH, TOKENS, WORDS, PIXELS = 8, 8, 32, 32
"""Samples, tokens of each, words that there are, and pixels of a side."""
FIRST_WORD = 3
"""What lies below stands for the beginning, the end and padding in one model or another."""


def words(batch: int = BATCH, tokens: int = TOKENS) -> torch.Tensor:
    """Token numbers, [batch, tokens]."""
    return torch.randint(FIRST_WORD, WORDS, (batch, tokens))


def images(batch: int = BATCH, pixels: int = PIXELS, channels: int = 3) -> torch.Tensor:
    """Pixels, [batch, channels, pixels, pixels]."""
    return torch.randn(batch, channels, pixels, pixels)


def classes(batch: int = BATCH, num_classes: int = 10) -> torch.Tensor:
    """The class of each sample, [batch]."""
    return torch.randint(0, num_classes, (batch,))


def mask(batch: int = BATCH, tokens: int = TOKENS) -> torch.Tensor:
    """Which tokens are no padding, [batch, tokens]: all but the last two of every other sample."""
    present = torch.ones(batch, tokens, dtype=torch.int64)
    present[::2, -2:] = 0
    return present
