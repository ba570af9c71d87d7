"""What the server of this benchmark serves: one answer of 200 MB, and one of 20 MB for those who want JSON."""

import numpy as np
from jaxtyping import Float

import dyorc

NUM_LARGE = 50_000_000
NUM_TEXT = 5_000_000


@dyorc.program(max_batch_size=1)
def large_numbers(seed: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 50000000"]:
    """200 MB, straight into shared memory."""
    found = dyorc.empty((len(seed), NUM_LARGE), np.float32)
    found[:] = seed
    return found


@dyorc.program(max_batch_size=1)
def text_numbers(seed: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 5000000"]:
    """20 MB whose decimals differ."""
    return seed + np.arange(NUM_TEXT, dtype=np.float32)


@dyorc.workflow
async def large(seed: Float[np.ndarray, "1"]) -> Float[np.ndarray, "50000000"]:
    """Asked for as raw bytes."""
    return large_numbers(seed)


@dyorc.workflow
async def text(seed: Float[np.ndarray, "1"]) -> Float[np.ndarray, "5000000"]:
    """Asked for as JSON."""
    return text_numbers(seed)
