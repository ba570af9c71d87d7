"""The workflows of these benchmarks: small answers for the measured client, large ones for clients that do not read."""

import os
import time

import torch
from jaxtyping import Float
from torch import Tensor

import dyorc

LARGE = 1_000_000

DEVICE_S = float(os.environ.get("VICTIM_DEVICE_S", "0"))
"""The time of a batch. It takes no CPU time, as on a GPU."""


@dyorc.program(max_batch_size=32)
def small(x: Float[Tensor, "batch 16"]) -> Float[Tensor, "batch 16"]:
    """Does almost nothing, on a slow device."""
    time.sleep(DEVICE_S)
    return x * 2


@dyorc.program(max_batch_size=4)
def large(x: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 1000000"]:
    """Answers 4 bytes with 4 MB."""
    return torch.zeros(len(x), LARGE) + x


@dyorc.workflow
async def answer(x: Float[Tensor, "16"]) -> Float[Tensor, "16"]:
    """For the measured client."""
    return small(x)


@dyorc.workflow
async def answer_at_length(x: Float[Tensor, "1"]) -> Float[Tensor, "1000000"]:
    """For clients that do not read."""
    return large(x)
