"""What both servers serve: 1,024 numbers, each plus one. It is so little work that everything around it counts.

dyorc serve benchmarks/focused/gateway/plus_one.py:plus_one
"""

import numpy as np
from jaxtyping import Float

import dyorc


@dyorc.program(max_batch_size=32)
def plus_one(x: Float[np.ndarray, "batch 1024"]) -> Float[np.ndarray, "batch 1024"]:
    """Adds one to each number."""
    return x + np.float32(1)
