"""The workflows of this benchmark: an answer of 200 MB, one of 20 MB to be sent as JSON, and a request of 200 MB."""

import numpy as np
from jaxtyping import Float

import dyorc

NUM_LARGE = 50_000_000
NUM_TEXT = 5_000_000


@dyorc.program(max_batch_size=1)
def large_numbers(seed: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 50000000"]:
    """Writes 200 MB straight into shared memory."""
    numbers = dyorc.empty((len(seed), NUM_LARGE), np.float32)
    numbers[:] = seed
    return numbers


@dyorc.program(max_batch_size=1)
def text_numbers(seed: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 5000000"]:
    """Makes 20 MB of numbers with different decimals."""
    return seed + np.arange(NUM_TEXT, dtype=np.float32)


@dyorc.workflow
async def large(seed: Float[np.ndarray, "1"]) -> Float[np.ndarray, "50000000"]:
    """Asked for as raw bytes."""
    return large_numbers(seed)


@dyorc.workflow
async def text(seed: Float[np.ndarray, "1"]) -> Float[np.ndarray, "5000000"]:
    """Asked for as JSON."""
    return text_numbers(seed)


@dyorc.program(max_batch_size=1)
def first_number(numbers: Float[np.ndarray, "batch 50000000"]) -> Float[np.ndarray, "batch 1"]:
    """Reads next to nothing of 200 MB."""
    return numbers[:, :1].copy()


@dyorc.workflow
async def taken(numbers: Float[np.ndarray, "50000000"]) -> Float[np.ndarray, "1"]:
    """A large request with a small answer."""
    return first_number(numbers)
