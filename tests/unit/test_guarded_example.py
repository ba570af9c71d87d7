"""The answers of `examples/guarded` have the same bits in every batch, with any weights on their grid."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

FOLDER = Path(__file__).parents[2] / "examples" / "guarded"
Net = TypeVar("Net", bound=nn.Module)
BATCH_SIZES = (1, 5, 8)


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example's nets."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("guarded_nets")


def fill(nets: ModuleType, net: Net) -> Net:
    """Gives a net weights from all over the grid: sums are as long as they can be."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(nets.Grid()(torch.empty_like(weight).uniform_(-0.6, 0.6)))
    return net.eval()


def messages() -> Tensor:
    return torch.randint(128, (32, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def test_the_guards_score_does_not_depend_on_the_batch(nets: ModuleType) -> None:
    guard, texts = fill(nets, nets.Guard()), messages()
    together = guard.scores(texts)
    assert together.unique().numel() > 100, "the scores say nothing"
    for size in BATCH_SIZES:
        assert torch.equal(torch.cat([guard.scores(part) for part in texts.split(size)]), together)


@torch.inference_mode()
def test_the_generators_text_does_not_depend_on_the_batch(nets: ModuleType) -> None:
    generator, texts = fill(nets, nets.Generator()), messages()
    seen = texts[:, -generator.num_seen :].long()
    together, continued = generator(seen), generator.continue_text(texts)
    assert together.unique().numel() > 100, "the scores say nothing"
    for size in BATCH_SIZES:
        assert torch.equal(torch.cat([generator(part) for part in seen.split(size)]), together)
        assert torch.equal(torch.cat([generator.continue_text(part) for part in texts.split(size)]), continued)
