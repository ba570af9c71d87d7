"""Models of `examples/chat` for tests: of any weights, in double precision, so that no choice of a token hangs on rounding."""

from types import ModuleType
from typing import Any

import pytest
import torch

from tests.unit.examples.modules import load_module


def make(monkeypatch: pytest.MonkeyPatch, seed: int = 0, **size: Any) -> tuple[ModuleType, Any]:
    """Returns the module and a small model."""
    module = load_module("chat", "chat_model", monkeypatch)
    torch.manual_seed(seed)
    size = {"width": 32, "num_layers": 3, "num_heads": 4, "num_tokens": 300, "max_length": 96} | size
    model = module.Gpt(module.GptSize(**size)).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # norms and biases count, too
    return module, model


def prompts_of(*lengths: int) -> list[list[int]]:
    """Returns prompts of these lengths; each is other text."""
    source = torch.Generator().manual_seed(7)
    return [torch.randint(256, (length,), generator=source).tolist() for length in lengths]
