"""A branch behind a slow program: ``dyorc serve benchmarks/focused/scaling_live/branch_app.py:branching``.

``BENCHMARK_COLD_DELAY_S`` sets how long the branch stays parked before its process ends.
"""

import os
import time

import numpy as np
from jaxtyping import Float

import dyorc

UPSTREAM_S, LOAD_S = 1.0, 0.3


@dyorc.program(max_batch_size=8)
class Upstream:
    """Takes a second for anything."""

    def __call__(self, x: Float[np.ndarray, "batch 16"]) -> Float[np.ndarray, "batch 16"]:
        time.sleep(UPSTREAM_S)
        return x


@dyorc.program(
    max_batch_size=8,
    autoscaling_config={
        "min_replicas": 0,
        "max_replicas": 1,
        "downscale_delay_s": 1.0,
        "cold_delay_s": float(os.environ.get("BENCHMARK_COLD_DELAY_S", "600")),
    },
)
class Branch:
    """Needs a while to load. What it computes takes no time."""

    def __init__(self) -> None:
        time.sleep(LOAD_S)

    def __call__(self, x: Float[np.ndarray, "batch 16"]) -> Float[np.ndarray, "batch 16"]:
        return x * 2


upstream = Upstream()
branch = Branch()


def is_positive(x: np.ndarray) -> bool:
    return bool(x[0] > 0)


@dyorc.workflow
async def branching(x: Float[np.ndarray, "16"]) -> Float[np.ndarray, "16"]:
    """The branch works on what comes from upstream, so nothing but its loading can be done before."""
    y = upstream(x)
    if await dyorc.when(y, is_positive):
        return branch(y)
    return y
