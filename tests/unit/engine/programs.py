"""Programs and workflows for tests of the engine: NumPy only, each with a result that is easy to predict."""

from typing import TypedDict

import numpy as np
from jaxtyping import Float

import dyorc

Vector = Float[np.ndarray, "2"]
Vectors = Float[np.ndarray, "batch 2"]


class Extremes(TypedDict):
    """Outputs of `extremes`, for a batch."""

    low: Float[np.ndarray, " batch"]
    high: Float[np.ndarray, " batch"]


@dyorc.program(max_batch_size=4)
def add_one(x: Vectors) -> Vectors:
    return x + 1


@dyorc.program(max_batch_size=4)
def double(x: Vectors) -> Vectors:
    return x * 2


@dyorc.program(max_batch_size=4)
def scale(x: Vectors, factor: float) -> Vectors:
    return x * factor


@dyorc.program(max_batch_size=32)
def check(x: Vectors) -> Vectors:
    """Refuses a whole batch for one negative number."""
    if (x < 0).any():
        raise ValueError("a number is negative")
    return x


@dyorc.program(max_batch_size=4)
def add(x: Vectors, y: Vectors) -> Vectors:
    return x + y


@dyorc.program(max_batch_size=4)
def extremes(x: Vectors) -> Extremes:
    return {"low": x.min(axis=1), "high": x.max(axis=1)}


@dyorc.program(max_batch_size=4)
def split(x: Vectors) -> tuple[Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]:
    return x[:, 0], x[:, 1]


@dyorc.program(max_batch_size=4)
def as_pair(x: Float[np.ndarray, " batch"], y: Float[np.ndarray, " batch"]) -> Vectors:
    return np.stack([x, y], axis=1)


@dyorc.program(max_batch_size=4, pure=False)
def send(x: Vectors) -> Vectors:
    """Stands for a program with an effect."""
    return x


@dyorc.program(max_batch_size=4, pure=False, idempotent=True)
def put(x: Vectors) -> Vectors:
    """Stands for a program whose effect may be repeated."""
    return x


def is_large(x: np.ndarray) -> bool:
    return bool(x.sum() > 10)


@dyorc.workflow
async def increment(x: Vector) -> Vector:
    return add_one(x)


@dyorc.workflow
async def increment_twice(x: Vector) -> Vector:
    return add_one(add_one(x))


@dyorc.workflow
async def checked(x: Vector) -> Vector:
    return check(x)


@dyorc.workflow
async def cascade(x: Vector) -> Vector:
    """Calls `add_one`, and `double` only if the result is not large yet."""
    small = add_one(x)
    if await dyorc.when(small, is_large):
        return small
    return double(x)
