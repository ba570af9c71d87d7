"""A program in the server's process between two on Ray."""

import os

import numpy as np
from jaxtyping import Float, Int

import dyorc

NUM_VALUES = 500_000
"""How many float32 values make 2 MB, which is too large for messages."""


@dyorc.program(max_batch_size=4)
def make_ramp(seed: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 500000"]:
    """Makes 2 MB that depend on the seed; on Ray."""
    return seed + np.arange(NUM_VALUES, dtype=np.float32)


@dyorc.program(max_batch_size=4, in_process=True)
def add_here(x: Float[np.ndarray, "batch 500000"]) -> Float[np.ndarray, "batch 500000"]:
    """Adds 1, in place, in the server's process."""
    x += 1
    return x


@dyorc.program(max_batch_size=4)
def last(x: Float[np.ndarray, "batch 500000"]) -> Float[np.ndarray, " batch"]:
    """Returns the last value; on Ray."""
    return x[:, -1]


@dyorc.program(max_batch_size=4, in_process=True)
def pid_here(x: Float[np.ndarray, "batch 1"]) -> Int[np.ndarray, " batch"]:
    """Returns the process in which it runs, for each call."""
    return np.full(len(x), os.getpid())


@dyorc.workflow
async def there_and_back(seed: Float[np.ndarray, "1"]) -> Float[np.ndarray, ""]:
    """Sends 2 MB from Ray to the server's process and back."""
    return last(add_here(make_ramp(seed)))
