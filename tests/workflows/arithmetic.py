"""Small, correct and quick: for tests about everything else."""

from typing import TypedDict

import numpy as np
from jaxtyping import Float, Int

import dyorc


class Sums(TypedDict):
    """The outputs of `add_up`."""

    total: Float[np.ndarray, ""]
    num_calls: Int[np.ndarray, ""]


class BatchSums(TypedDict):
    """`Sums` of a batch."""

    total: Float[np.ndarray, " batch"]
    num_calls: Int[np.ndarray, " batch"]


@dyorc.program(max_batch_size=32)
def double(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Returns twice the input."""
    return x * 2


@dyorc.program(max_batch_size=32)
def add_up(x: Float[np.ndarray, "batch n"]) -> BatchSums:
    """Returns the sum, and how many calls were in the batch."""
    return {"total": x.sum(axis=1), "num_calls": np.full(len(x), len(x), np.int64)}


@dyorc.workflow
async def quadruple(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Makes two calls, one after another."""
    return double(double(x))


@dyorc.workflow
async def double_until_large(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Runs a loop whose length the data decides."""
    while await dyorc.when(x, lambda value: bool(value.max() < 100)):
        x = double(x)
    return x


@dyorc.workflow
async def sums(x: Float[np.ndarray, " n"]) -> Sums:
    """Makes one call of a program with several outputs."""
    found = add_up(x)
    return {"total": found["total"], "num_calls": found["num_calls"]}


double_pair = double.with_options(name="double_pair", num_replicas=2)


@dyorc.workflow
async def quadruple_by_pair(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Does what `quadruple` does, on a program with two replicas."""
    return double_pair(double_pair(x))
