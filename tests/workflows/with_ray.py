"""A user's module that uses Ray itself."""

import numpy as np
import ray
from jaxtyping import Float

import dyorc


@dyorc.program
def seen_from_ray(x: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 1"]:
    """Adds the number of Ray's nodes."""
    return x + len(ray.nodes())
