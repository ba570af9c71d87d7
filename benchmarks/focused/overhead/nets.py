"""The two torch networks of the overhead benchmark, the branch condition and the drawn inputs.

Used by DyOrc's workflow (`cascade.py`), by the peer (`ray_serve_app.py`) and for the reference answers, so
that all of them compute the same thing. Importing this module sets torch to one thread in the importing process: the networks are
tiny, and the benchmark is about what happens around them. It starts no threads.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.focused.raw_floats import OUTPUT
from loadgen.pool import Pool, Tensors

NUM_INPUTS = 256
NUM_OUTPUTS = 16
MAX_BATCH_SIZE = 32

# A little more than half of the drawn inputs go on. With exactly half, the median latency would lie on the edge between the
# requests of one stage and those of two, and jump from one to the other with the noise.
_SECOND_STAGE_RATIO = 9 / 16

# An input whose condition is closer to zero than this is left out: batching changes the last bits of sums, so an input on the
# edge could take a different branch from its reference.
_EDGE = 1e-3

torch.set_num_threads(1)


def build_small() -> nn.Module:
    """The first stage. It is an odd function (no bias, tanh), so for inputs symmetric around zero half of its values are > 0."""
    return _seeded(1, NUM_INPUTS, 64, NUM_OUTPUTS)


def build_large() -> nn.Module:
    """The second stage, with about sixteen times the arithmetic of the first."""
    return _seeded(2, NUM_INPUTS, 512, 256, NUM_OUTPUTS)


def is_done(y: np.ndarray) -> bool:
    """Whether the first stage's answer is final: true for half of the inputs of a symmetric distribution."""
    return bool(y[0] > 0.0)


def draw_pool(num_requests: int = 512, seed: int = 0) -> Pool:
    """Draws standard normal inputs and computes their answers here, one by one."""
    small, large = build_small(), build_large()
    random = np.random.default_rng(seed)
    num_going_on = round(num_requests * _SECOND_STAGE_RATIO)
    wanted = {False: num_going_on, True: num_requests - num_going_on}
    inputs: list[Tensors] = []
    answers: list[Tensors] = []
    with torch.inference_mode():
        while len(inputs) < num_requests:
            x = random.standard_normal(NUM_INPUTS, dtype=np.float32)
            y = _answer(small, x)
            done = is_done(y)
            if wanted[done] == 0 or abs(float(y[0])) < _EDGE:
                continue
            wanted[done] -= 1
            inputs.append({"x": x})
            answers.append({OUTPUT: y if done else _answer(large, x)})
    return Pool(inputs=inputs, answers=answers)


def _answer(net: nn.Module, x: np.ndarray) -> np.ndarray:
    y: Tensor = net(torch.from_numpy(x)[None])
    return y[0].numpy()


def _seeded(seed: int, *widths: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for num_in, num_out in pairwise(widths):
        linear = nn.Linear(num_in, num_out, bias=False)
        with torch.no_grad():
            linear.weight.normal_(0.0, num_in**-0.5, generator=generator)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1]).eval().requires_grad_(False)
