"""The programs that `benchmarks.focused.gpu` serves.

A chain of three that pass 8 MB to each other, with and without ``device=``; and a net of many small kernels, with and without
CUDA graphs. ``BENCHMARK_DEVICE`` names another device than ``cuda``, to try the benchmark without a GPU.
"""

import os

import torch
from jaxtyping import Float
from torch import Tensor

import dyorc
from benchmarks.focused.chain.work import MAX_BATCH_SIZE, make, ramp, shift, total
from benchmarks.focused.gpu.net import run_net

DEVICE = os.environ.get("BENCHMARK_DEVICE", "cuda")
OPTIONS = {
    "max_batch_size": MAX_BATCH_SIZE,
    "ray_actor_options": {"num_gpus": 0.3 if DEVICE == "cuda" else 0},  # all on one device
}


@dyorc.program(device=DEVICE, **OPTIONS)
class Make:
    """Expands a seed to 8 MB."""

    def __init__(self) -> None:
        self.ramp = ramp().to(DEVICE)

    def __call__(self, seed: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 2000000"]:
        return make(self.ramp, seed)


@dyorc.program(device=DEVICE, **OPTIONS)
def shift_values(x: Float[Tensor, "batch 2000000"]) -> Float[Tensor, "batch 2000000"]:
    """Turns 8 MB into 8 MB."""
    return shift(x)


@dyorc.program(device=DEVICE, **OPTIONS)
def total_values(x: Float[Tensor, "batch 2000000"]) -> Float[Tensor, "batch 4"]:
    """Reduces 8 MB to four values."""
    return total(x)


@dyorc.program(**OPTIONS)
class MakeAndCopy:
    """Like `Make`, but copies by itself."""

    def __init__(self) -> None:
        self.ramp = ramp().to(DEVICE)

    def __call__(self, seed: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 2000000"]:
        return make(self.ramp, seed.to(DEVICE)).cpu()


@dyorc.program(**OPTIONS)
def shift_and_copy(x: Float[Tensor, "batch 2000000"]) -> Float[Tensor, "batch 2000000"]:
    """Like `shift_values`, but copies by itself."""
    return shift(x.to(DEVICE)).cpu()


@dyorc.program(**OPTIONS)
def total_and_copy(x: Float[Tensor, "batch 2000000"]) -> Float[Tensor, "batch 4"]:
    """Like `total_values`, but copies by itself."""
    return total(x.to(DEVICE)).cpu()


@dyorc.program(device=DEVICE, **OPTIONS)
def many_kernels(x: Float[Tensor, "batch 256"]) -> Float[Tensor, "batch 256"]:
    """Launches each kernel from Python."""
    return run_net(x)


@dyorc.program(device=DEVICE, cuda_graphs=True, **OPTIONS)
def one_graph(x: Float[Tensor, "batch 256"]) -> Float[Tensor, "batch 256"]:
    """Launches all kernels at once."""
    return run_net(x)


make_values = Make()
make_and_copy = MakeAndCopy()


@dyorc.workflow
async def chain(seed: Float[Tensor, "1"]) -> Float[Tensor, "4"]:
    """Calls the programs in sequence; DyOrc moves the tensors."""
    return total_values(shift_values(make_values(seed)))


@dyorc.workflow
async def chain_copied(seed: Float[Tensor, "1"]) -> Float[Tensor, "4"]:
    """Calls the programs that copy by themselves, in sequence."""
    return total_and_copy(shift_and_copy(make_and_copy(seed)))


@dyorc.workflow
async def kernels(x: Float[Tensor, "256"]) -> Float[Tensor, "256"]:
    """Runs the net."""
    return many_kernels(x)


@dyorc.workflow
async def kernels_as_graph(x: Float[Tensor, "256"]) -> Float[Tensor, "256"]:
    """Runs the net as a graph."""
    return one_graph(x)


torch.set_num_threads(1)
