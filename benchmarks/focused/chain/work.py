"""What the chain benchmark's three programs compute, their inputs, and the answers according to NumPy.

Used by DyOrc's workflow (`chain.py`), by the peer (`ray_serve_app.py`) and to time the programs alone. Each function reads and
writes its tensors once, out of place, so that the transport between the programs counts. Importing this module sets torch to one
thread in the importing process: the programs of a chain run side by side, on few cores.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.focused.raw_floats import OUTPUT
from loadgen.pool import Pool

NUM_VALUES = 2_000_000
"""float32 values between the programs: 8 MB."""
NUM_TOTALS = 4
MAX_BATCH_SIZE = 4

_OFFSET = 0.5

torch.set_num_threads(1)


def ramp() -> Tensor:
    """The constant that seeds are expanded with: no two parts of it have the same mean. Shape (NUM_VALUES,)."""
    return torch.linspace(-1.0, 2.0, NUM_VALUES)


def make(ramp: Tensor, seeds: Tensor, out: Tensor | None = None) -> Tensor:
    """Shapes: (batch, 1) -> (batch, NUM_VALUES)."""
    return torch.mul(seeds, ramp, out=out)


def shift(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Shapes: (batch, NUM_VALUES) -> the same."""
    return torch.add(x, _OFFSET, out=out)


def total(x: Tensor) -> Tensor:
    """The mean of each quarter. Shapes: (batch, NUM_VALUES) -> (batch, NUM_TOTALS)."""
    return x.reshape(len(x), NUM_TOTALS, -1).mean(dim=2)


def draw_pool(num_requests: int = 64, seed: int = 0) -> Pool:
    """Draws seeds and computes their answers with NumPy, in float64."""
    seeds = np.random.default_rng(seed).uniform(-1.0, 1.0, num_requests).astype(np.float32)
    means = np.linspace(-1.0, 2.0, NUM_VALUES).reshape(NUM_TOTALS, -1).mean(axis=1)
    answers = (np.outer(seeds, means) + _OFFSET).astype(np.float32)
    return Pool(inputs=[{"seed": value[None]} for value in seeds], answers=[{OUTPUT: answer} for answer in answers])
