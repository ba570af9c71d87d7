"""Programs on a device that counts copies, each in a process of its own. Importing this puts the device in place.

Each program returns how many copies its process has made before it was called, in all: from the host, and to it.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import dyorc
from dyorc.devices import known_devices
from dyorc.devices.known_devices import accelerator_named
from dyorc.errors import ProgramError
from tests.counting_device import CountingDevice, CountingTensor

known_devices.KINDS.setdefault("counting", CountingDevice)

Large = Float[Tensor, "batch n"]
Counts = Float[Tensor, "batch 2"]


def _counts(num_calls: int) -> Tensor:
    """Returns the copies from and to the host, for each call. Lies on the host, and so counts for nothing."""
    device: Any = accelerator_named("counting")
    return torch.tensor([[device.num_from_host, device.num_to_host]] * num_calls, dtype=torch.float32)


@dyorc.program(device="counting")
def scale(x: Large) -> tuple[Large, Counts]:
    """Doubles."""
    assert isinstance(x, CountingTensor)
    return x * 2, _counts(len(x))


@dyorc.program(device="counting")
def shift(x: Large) -> tuple[Large, Counts]:
    """Adds one."""
    assert isinstance(x, CountingTensor)
    return x + 1, _counts(len(x))


@dyorc.program(device="counting")
def total(x: Large) -> tuple[Float[Tensor, "batch 1"], Counts]:
    """Adds up."""
    assert isinstance(x, CountingTensor)
    return x.sum(1, keepdim=True), _counts(len(x))


@dyorc.program(device="counting")
def spoil(x: Large) -> Large:
    """Writes to its input."""
    return x.add_(100)


@dyorc.program
def on_host(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    """Triples, on the host."""
    return x * 3


Copies = Float[np.ndarray, "2"]


@dyorc.workflow
async def summed(x: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, "1"], Copies, Copies, Copies]:
    """Passes two large tensors from process to process."""
    y, of_scale = scale(x)
    z, of_shift = shift(y)
    sums, of_total = total(z)
    return sums, of_scale, of_shift, of_total


@dyorc.workflow
async def read_back(x: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " m"], Copies]:
    """Has a result read on the host: by another process, by the client, and a part of it."""
    y, of_shift = shift(x)
    return y, on_host(y[1:][::-1]), of_shift


@dyorc.workflow
async def spoilt(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Needs a tensor that another program has written to."""
    y, _ = shift(x)
    try:
        return await spoil(y)
    except ProgramError as error:
        if "'spoil' wrote to an input on device counting:0" not in str(error):
            raise
        return on_host(y)
