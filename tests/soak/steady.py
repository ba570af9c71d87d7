"""The workflows of a long run that stay as they are; `load` says what they have to answer."""

import os
from collections.abc import AsyncIterator

import numpy as np
from jaxtyping import Float

import dyorc

Number = Float[np.ndarray, ""]
Numbers = Float[np.ndarray, " batch"]
LEAK_VARIABLE = "SOAK_LEAK_BYTES"
"""How many bytes `double` keeps of each batch; 0 but for a run that shows that a leak is noticed."""
_LEAK_BYTES = int(os.environ.get(LEAK_VARIABLE, "0"))
_leaked: list[bytes] = []


@dyorc.program(max_batch_size=16)
def double(x: Numbers) -> Numbers:
    """Doubles."""
    if _LEAK_BYTES:
        _leaked.append(b"1" * _LEAK_BYTES)
    return x * 2


@dyorc.program(max_batch_size=4)
def turn(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    """Turns rows around."""
    return np.ascontiguousarray(x[:, ::-1])


@dyorc.workflow
async def looped(x: Number) -> Number:
    """Doubles until the value is at least 100; guesses that it goes on."""
    y = double(x)
    while await dyorc.when(y, lambda value: bool(value < 100), likely=True):
        y = double(y)
    return y


@dyorc.workflow
async def fanned(x: Number) -> Number:
    """Makes calls side by side and adds up what they return."""
    calls = [double(x) for _ in range(4)]
    return np.asarray(sum([float(await call) for call in calls]), np.float32)


@dyorc.workflow
async def counted(x: Number, num_parts: int) -> AsyncIterator[Number]:
    """Answers in parts, each twice the one before."""
    for _ in range(num_parts):
        x = double(x)
        yield x


@dyorc.workflow
async def turned(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Turns a tensor around that is too large for a message."""
    return turn(x)
