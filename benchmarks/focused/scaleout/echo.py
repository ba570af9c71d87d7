"""A workflow whose program takes next to no time: what is measured is the way there and back."""

import numpy as np
from jaxtyping import Float

import dyorc


@dyorc.program(max_batch_size=64)
def negate(x: Float[np.ndarray, "batch 256"]) -> Float[np.ndarray, "batch 256"]:
    """One pass over the memory."""
    return -x


@dyorc.workflow
async def echo(x: Float[np.ndarray, "256"]) -> Float[np.ndarray, "256"]:
    """One call."""
    return negate(x)
