"""What the soak test serves: a loop whose length the data decides.

dyorc serve benchmarks/focused/soak/app.py:double_until_large
"""

import numpy as np
from jaxtyping import Float

import dyorc


@dyorc.program(max_batch_size=32)
def double(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Twice the input."""
    return x * 2


@dyorc.workflow
async def double_until_large(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Until the largest is 100 or more."""
    y = double(x)
    while await dyorc.when(y, lambda value: bool(value.max() < 100)):
        y = double(y)
    return y
