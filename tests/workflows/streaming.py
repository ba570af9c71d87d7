"""Workflows that answer in parts."""

from collections.abc import AsyncIterator

import numpy as np
from jaxtyping import Float

import dyorc
from tests.workflows.large import ramp, shift

Vector = Float[np.ndarray, "2"]
Vectors = Float[np.ndarray, "batch 2"]
Large = Float[np.ndarray, "2000000"]

made: list[str] = []
"""The notes of generators, in the process that steps them."""


@dyorc.program(max_batch_size=4)
def add_one(x: Vectors) -> Vectors:
    if (x == 13).any():
        raise ValueError("13 is not allowed")
    return x + 1


@dyorc.workflow
async def count_up(x: Vector, num_parts: int) -> AsyncIterator[Vector]:
    """Yields the numbers after x; none of them may be 13."""
    try:
        for number in range(num_parts):
            made.append(f"part {number}")
            x = add_one(x)
            yield x
    finally:
        made.append("closed")


@dyorc.workflow
async def count_up_to_10(x: Vector) -> AsyncIterator[Vector]:
    """Decides after each part whether to go on."""
    while True:
        x = add_one(x)
        yield x
        if await dyorc.when(x, lambda value: bool(value[0] >= 10), likely=False):
            return


@dyorc.workflow
async def ramps(seed: Float[np.ndarray, "1"], num_parts: int) -> AsyncIterator[Large]:
    """Yields parts of 8 MB, each made of the one before."""
    x = ramp(seed)
    for _ in range(num_parts):
        yield x
        x = shift(x)
