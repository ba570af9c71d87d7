"""Programs whose tensors are too large to travel inside messages."""

import time
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

import dyorc

POLL_S = 0.01
NUM_VALUES = 2_000_000
"""How many float32 values make 8 MB."""


@dyorc.program(max_batch_size=4)
def ramp(seed: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 2000000"]:
    """Makes 8 MB that depend on the seed."""
    return seed + np.arange(NUM_VALUES, dtype=np.float32)


@dyorc.program(max_batch_size=4)
def shift(x: Float[np.ndarray, "batch 2000000"]) -> Float[np.ndarray, "batch 2000000"]:
    """Adds 1, in place: what others read must not change."""
    x += 1
    return x


@dyorc.program(max_batch_size=4)
def shift_there(x: Float[np.ndarray, "batch 2000000"]) -> Float[np.ndarray, "batch 2000000"]:
    """Adds 1, straight into shared memory."""
    return np.add(x, 1, out=dyorc.empty(x.shape, x.dtype))


@dyorc.program(max_batch_size=4)
def total(x: Float[np.ndarray, "batch 2000000"]) -> Float[np.ndarray, "batch 2"]:
    """Returns the first and the last value."""
    return x[:, [0, -1]]


@dyorc.program(max_batch_size=4)
def total_when_open(x: Float[np.ndarray, "batch 2000000"], folder: str) -> Float[np.ndarray, "batch 2"]:
    """Does what `total` does, once a file `open` exists."""
    (Path(folder) / "started").touch()
    while not (Path(folder) / "open").exists():
        time.sleep(POLL_S)
    return x[:, [0, -1]]


@dyorc.program(max_batch_size=4)
def checksum(x: UInt8[np.ndarray, "batch n"]) -> Float[np.ndarray, " batch"]:
    """Returns the sum of all bytes."""
    return x.sum(axis=1, dtype=np.float32)


@dyorc.workflow
async def chain(seed: Float[np.ndarray, "1"]) -> Float[np.ndarray, "2"]:
    """Runs three programs, 8 MB between them; the middle result is used twice, and the first one again at the end."""
    first = ramp(seed)
    once = shift(first)
    twice = shift_there(once)
    seen = await total(twice)
    assert seen[0] == (await total(once))[0] + 1 == (await total(first))[0] + 2
    return total(twice)


@dyorc.workflow
async def chain_when_open(seed: Float[np.ndarray, "1"], folder: str) -> Float[np.ndarray, "2"]:
    """Runs the chain; its last program starts when the test says so."""
    return total_when_open(ramp(seed), folder)


@dyorc.workflow
async def whole(seed: Float[np.ndarray, "1"]) -> Float[np.ndarray, "2000000"]:
    """Answers with 8 MB."""
    return shift(ramp(seed))


@dyorc.workflow
async def summed(x: UInt8[np.ndarray, " n"]) -> Float[np.ndarray, ""]:
    """Takes a large input."""
    return checksum(x)


@dyorc.workflow
async def loop(seed: Float[np.ndarray, "1"], num_turns: int) -> Float[np.ndarray, "2"]:
    """Makes 8 MB in each turn, of which only the last are needed."""
    x = ramp(seed)
    for _ in range(num_turns):
        x = shift_there(x)
        if not await dyorc.when(total(x), lambda ends: bool(ends[0] >= 0)):
            break
    return total(x)
