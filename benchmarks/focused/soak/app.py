"""What the soak test serves: a loop whose length depends on the data.

dyorc serve benchmarks/focused/soak/app.py:double_until_large
"""

import numpy as np
from jaxtyping import Float

import dyorc


@dyorc.program(max_batch_size=32)
def double(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Doubles the input."""
    return x * 2


@dyorc.workflow
async def double_until_large(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Doubles until the largest value is at least 100."""
    y = double(x)
    while await dyorc.when(y, lambda value: bool(value.max() < 100)):
        y = double(y)
    return y
