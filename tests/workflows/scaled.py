"""A cascade of which one program is cold until it is needed."""

import os

import numpy as np
from jaxtyping import Float, Int

import dyorc

_COLD = {"min_replicas": 0, "max_replicas": 2, "downscale_delay_s": 0.5, "downscale_to_zero_delay_s": 0.5, "cold_delay_s": 600.0}


@dyorc.program
def check(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, " batch"]:
    """Returns the largest value."""
    return x.max(axis=1)


@dyorc.program(autoscaling_config=_COLD)
class Rare:
    """Holds weights while it is warm."""

    def __init__(self) -> None:
        self._weights = np.full(4, 2, np.float32)

    def __call__(self, x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
        return x * self._weights


@dyorc.program(autoscaling_config=_COLD)
class Pid:
    """Says in which process it runs."""

    def __call__(self, x: Float[np.ndarray, "batch 4"]) -> Int[np.ndarray, " batch"]:
        return np.full(len(x), os.getpid(), np.int64)


rare = Rare()
pid = Pid()


@dyorc.workflow
async def cascade(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Doubles inputs with a large value; others come back as they are."""
    if await dyorc.when(check(x), lambda largest: largest > 10):
        return rare(x)
    return x


@dyorc.workflow
async def where(x: Float[np.ndarray, "4"]) -> Int[np.ndarray, ""]:
    """Returns the process that ran it."""
    return pid(x)
