"""A guard before slow work: what guessing is for."""

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
    """Twice x, unless it is negative."""
    if await dyorc.when(look(x), lambda seen: seen[0] >= 0, likely=True):
        return work(x)
    return x


@dyorc.program(max_batch_size=8)
def work_at_once(x: Vectors) -> Vectors:
    time.sleep(0.02)
    return 4 * x


@dyorc.workflow
async def quadruple_either_way(x: Vector) -> Vector:
    """4 x, on one of two ways; which one, x[1] tells, and cannot be foreseen."""
    if await dyorc.when(look(x), lambda seen: int(seen[1]) % 5 != 0):
        return work(work(x))
    return work_at_once(x)
