"""A guard before slow work, for which guessing is meant."""

import time

import numpy as np
from jaxtyping import Float

import dyorc

Vector = Float[np.ndarray, "4"]
Vectors = Float[np.ndarray, "batch 4"]


@dyorc.program(max_batch_size=8)
def look(x: Vectors) -> Vectors:
    time.sleep(0.03)
    return x


@dyorc.program(max_batch_size=8)
def work(x: Vectors) -> Vectors:
    time.sleep(0.06)
    return 2 * x


@dyorc.workflow
async def guarded(x: Vector) -> Vector:
    """Returns twice x, unless it is negative."""
    if await dyorc.when(look(x), lambda seen: seen[0] >= 0, likely=True):
        return work(x)
    return x


@dyorc.program(max_batch_size=8)
def work_at_once(x: Vectors) -> Vectors:
    time.sleep(0.02)
    return 4 * x


@dyorc.workflow
async def quadruple_either_way(x: Vector) -> Vector:
    """Returns 4 x, computed in one of two ways; x[1] decides which, and cannot be predicted."""
    if await dyorc.when(look(x), lambda seen: int(seen[1]) % 5 != 0):
        return work(work(x))
    return work_at_once(x)
