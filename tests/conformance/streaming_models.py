"""A model that answers in parts."""

from collections.abc import AsyncIterator

import numpy as np
from jaxtyping import Float

import dyorc


@dyorc.program(batched=False)
def next_part(x: Float[np.ndarray, " n"], fails: bool = False) -> Float[np.ndarray, " n"]:
    """Adds one to every number."""
    if fails:
        raise ValueError("asked to fail")
    return x + 1


@dyorc.workflow
async def count(x: Float[np.ndarray, " n"], num_parts: int = 3, fails_at: int = -1) -> AsyncIterator[Float[np.ndarray, " n"]]:
    """Counts up from `x`, one part a number. The part `fails_at` fails."""
    for at in range(num_parts):
        x = next_part(x, at == fails_at)
        yield x
