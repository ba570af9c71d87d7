"""What the server of these benchmarks serves: small answers for those who are measured, large ones for those who do not read."""

import os
import time

import torch
from jaxtyping import Float
from torch import Tensor

import dyorc

LARGE = 1_000_000

DEVICE_S = float(os.environ.get("VICTIM_DEVICE_S", "0"))
"""Time of a batch that takes none of the CPU's, as on a GPU."""


@dyorc.program(max_batch_size=32)
def small(x: Float[Tensor, "batch 16"]) -> Float[Tensor, "batch 16"]:
    """Next to nothing, on a device that takes its time."""
    time.sleep(DEVICE_S)
    return x * 2


@dyorc.program(max_batch_size=4)
def large(x: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 1000000"]:
    """4 MB for 4 bytes."""
    return torch.zeros(len(x), LARGE) + x


@dyorc.workflow
async def answer(x: Float[Tensor, "16"]) -> Float[Tensor, "16"]:
    """For those who are measured."""
    return small(x)


@dyorc.workflow
async def answer_at_length(x: Float[Tensor, "1"]) -> Float[Tensor, "1000000"]:
    """For those who do not read."""
    return large(x)
