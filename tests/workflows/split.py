"""A program whose module a group of processes splits by a plan. Its weights are in the folder that `NET_FOLDER` names."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import dyorc


class Net(nn.Module):
    """Reads an embedding by two matrices; one of its numbers is computed when it is made, and not saved."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = nn.functional.gelu) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.register_buffer("scale", torch.tensor(3.0), persistent=False)
        self.activation = activation

    def forward(self, tokens: Tensor) -> Tensor:
        return self.scale * self.down(self.activation(self.up(self.words(tokens)))).sum(1)


@dyorc.program(name="net", max_batch_size=4, pure=False, warmup=False)
class _Run:
    """Leaves a file `asked` when it gets a batch. Says that it has an effect, so that its calls are not repeated."""

    def __init__(self) -> None:
        self.folder = Path(os.environ["NET_FOLDER"])
        self.net = dyorc.load_module(Net, self.folder / "net.safetensors")

    def __call__(self, tokens: Int[Tensor, "batch 6"]) -> Float[Tensor, "batch 16"]:
        (self.folder / "asked").touch()
        return self.net(tokens)


net = _Run()
