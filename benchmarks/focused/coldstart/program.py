"""The program that is started: a torch net with weights of some 200 MB. DyOrc's and Ray Serve's replicas both load it."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn

import dyorc

WEIGHTS = "COLDSTART_WEIGHTS"
"""The variable that names the file of the weights."""
WIDTH = 2048
_LAYER_BYTES = 4 * WIDTH * (WIDTH + 1)


def make_net() -> nn.Module:
    """Returns the net, as large as the file."""
    num_layers = round(Path(os.environ[WEIGHTS]).stat().st_size / _LAYER_BYTES)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(num_layers)))


def write_weights(path: Path, size_bytes: int) -> None:
    """Writes weights of about that size."""
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(max(1, size_bytes // _LAYER_BYTES))))
    save_file(net.state_dict(), path)


@dyorc.program(name="cold")
class Cold:
    """Runs the net."""

    def __init__(self) -> None:
        self.net = dyorc.load_module(make_net, os.environ[WEIGHTS])
        self.net(torch.zeros(1, WIDTH))  # reads all weights

    def __call__(self, x: Float[Tensor, "batch 2048"]) -> Float[Tensor, "batch 2048"]:
        return self.net(x)


cold = Cold()
