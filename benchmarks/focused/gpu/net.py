"""A net of many small kernels, which take less time than it takes to launch them; and its inputs and answers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.focused.raw_floats import OUTPUT
from loadgen.pool import Pool

NUM_INPUTS = 256
NUM_LAYERS = 60
"""Each is three kernels."""


def run_net(x: Tensor) -> Tensor:
    """Shapes: (batch, NUM_INPUTS) -> the same. Element by element, so that all devices agree."""
    for _ in range(NUM_LAYERS):
        x = torch.tanh(x) * 1.5 + 0.01
    return x


def draw_pool(num_requests: int = 64, seed: int = 0) -> Pool:
    """Draws inputs, and computes their answers in float64 on the host."""
    inputs = np.random.default_rng(seed).standard_normal((num_requests, NUM_INPUTS)).astype(np.float32)
    answers = run_net(torch.from_numpy(inputs).double()).float().numpy()
    return Pool(inputs=[{"x": x} for x in inputs], answers=[{OUTPUT: answer} for answer in answers])
