"""What both servers serve: 1,024 numbers, each plus one. So little work that everything around it counts.

dyorc serve benchmarks/focused/gateway/plus_one.py:plus_one
"""

import numpy as np
from jaxtyping import Float

import dyorc


@dyorc.program(max_batch_size=32)
def plus_one(x: Float[np.ndarray, "batch 1024"]) -> Float[np.ndarray, "batch 1024"]:
    """One more, everywhere."""
    return x + np.float32(1)
