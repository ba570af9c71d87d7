"""Programs and their tensors for the tests of plans."""

import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from benchmarks.papers import models as papers_models
from dyorc.planner import models
from dyorc.planner.program import TensorProgram, ValueKind, capture, evaluate
from tests.shared_folders import run_folder


@dataclass(frozen=True)
class Example:
    """A program, whole tensors for its sources, and its results on one device, all in float64."""

    program: TensorProgram
    sources: dict[str, torch.Tensor]
    results: dict[str, torch.Tensor]
    module: nn.Module
    inputs: tuple[torch.Tensor, ...]


class _Net(nn.Module):
    """Convolutions and pooling before a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 6, 3, padding=1, bias=False),
            nn.AdaptiveAvgPool2d(7),
            nn.Flatten(),
            nn.Linear(294, 10),
        )

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(images), labels)


class _Dropping(nn.Module):
    """Planes, attention and a feed-forward layer, each with dropout of its own kind, and noise."""

    def __init__(self) -> None:
        super().__init__()
        self.planes = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Dropout2d(0.25), nn.ReLU())
        self.qkv = nn.Linear(8, 24)
        self.layer = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 8), nn.Dropout(0.1))
        self.norm = nn.LayerNorm(8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = self.planes(images).flatten(2).transpose(1, 2)
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(rows).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.2).transpose(1, 2).flatten(2)
        rows = self.norm(rows + mixed)
        return (rows + self.layer(rows) + 0.1 * torch.randn_like(rows)).square().mean()


class _Normalized(nn.Module):
    """Batch normalization of images and of rows, with running statistics and without."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(32, 12),
            nn.BatchNorm1d(12, track_running_stats=False),
            nn.Linear(12, 10),
        )

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(images), labels)


def _net() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return _Net(), (torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,)))


_EXAMPLES: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "gpt": lambda: models.gpt(layers=1),
    "net": _net,
    "batch_norm": lambda: (_Normalized(), (torch.randn(8, 3, 8, 8), torch.randint(0, 10, (8,)))),
    "bert": lambda: models.bert(layers=1),
    "bert_moe": lambda: models.bert_moe(hidden=16),
    "bert_switch": lambda: models.bert_moe(hidden=16, gate="switch"),
    "dropout": lambda: (_Dropping(), (torch.randn(8, 3, 4, 3),)),
    "llama": lambda: models.llama(layers=1),
    "swin": lambda: papers_models.swin(depths=(2, 1), hidden=8, window=2, size=16, batch=4),
    "unet": lambda: papers_models.unet(stages=1, size=8, batch=4),
    "vgg19": lambda: models.vgg19(batch=4, convolutions=(1, 1, 1, 1, 1)),
    "vit": lambda: models.vit(layers=1),
    "vit_moe": lambda: models.vit_moe(hidden=16),
}
EXAMPLES = tuple(_EXAMPLES)
"""The names of all examples."""


@cache
def example(name: str) -> Example:
    """Returns one of the examples, by its name. It takes seconds to make, so the processes of a test run share them."""
    folder = run_folder()
    if folder is None:
        return _made(name)
    path = folder / f"example-{name}.pickle"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            pickle.dump(_made(name), file)
        os.rename(file.name, path)
    return pickle.loads(path.read_bytes())


def _made(name: str) -> Example:
    torch.manual_seed(0)
    module, inputs = _EXAMPLES[name]()
    return example_of(module, tuple(x.double() if x.is_floating_point() else x for x in inputs))


def example_of(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Example:
    """Captures a module in float64 and evaluates it."""
    module = module.double()
    program = capture(module, inputs)
    sources = {name: tensor.detach().clone() for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    sources = {name: tensor for name, tensor in sources.items() if name in program.values}
    names = [name for name in program.sources if program.values[name].kind is ValueKind.INPUT]
    states = [value for value in program.values.values() if value.kind is ValueKind.STATE]
    sources |= {value.name: torch.zeros(value.shape, dtype=getattr(torch, value.dtype)) for value in states}
    sources |= dict(zip(names, inputs, strict=True))
    return Example(program, sources, evaluate(program, sources), module, inputs)
