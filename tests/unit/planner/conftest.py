"""Tests draw the same numbers whichever ran before them in the same process."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seeds torch."""
    torch.manual_seed(0)
