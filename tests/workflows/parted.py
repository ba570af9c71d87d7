"""Workflows for orchestrators in processes of their own: each answer says which process made it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

import dyorc

Number = Int[np.ndarray, ""]
Numbers = Int[np.ndarray, " batch"]


@dyorc.program(in_process=True, max_batch_size=16)
def squared_program(x: Numbers, rest_s: float = 0.0) -> tuple[Numbers, Numbers]:
    """Returns x * x + 1, and the id of this process."""
    time.sleep(rest_s)
    return x * x + 1, np.full(len(x), os.getpid())


@dyorc.workflow
async def squared(x: Number, rest_s: float = 0.0) -> tuple[Number, Number]:
    """Makes one call."""
    return squared_program(x, rest_s)


@dyorc.program(in_process=True, max_batch_size=4)
def doubled_program(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    """Doubles what is too large for a message."""
    return x * 2


@dyorc.workflow
async def doubled(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Makes two calls."""
    return doubled_program(doubled_program(x))


@dyorc.program(in_process=True, max_batch_size=4, pure=False)
def noted_program(x: Numbers, folder: str, rest_s: float = 0.0) -> Numbers:
    """Notes each number in a file `runs`, and rests; it must not be run twice."""
    descriptor = os.open(Path(folder) / "runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, "".join(f"{one}\n" for one in x.tolist()).encode())
    finally:
        os.close(descriptor)
    time.sleep(rest_s)
    return x + 1


@dyorc.workflow
async def noted(x: Number, folder: str, rest_s: float = 0.0) -> Number:
    """Makes one call, after one that may be repeated."""
    await squared_program(x)[0]
    return noted_program(x, folder, rest_s)


@dyorc.workflow
async def counted(x: Number, num_parts: int = 10) -> AsyncIterator[Number]:
    """Yields x + 0, x + 1, ..."""
    first = int(await x)
    for step in range(num_parts):
        yield squared_program(np.asarray(first + step))[0]


@dyorc.program(in_process=True, batched=False, max_ongoing=8)
async def ticking(x: Number, num_parts: int) -> AsyncIterator[Number]:
    """Yields x + 0, x + 1, ..., a while after each other."""
    for step in range(num_parts):
        await asyncio.sleep(0.01)
        yield x + step


@dyorc.program(in_process=True, batched=False, max_ongoing=8, pure=False)
async def ticking_once(x: Number, num_parts: int) -> AsyncIterator[Number]:
    """Yields the same, and must not be run twice."""
    for step in range(num_parts):
        await asyncio.sleep(0.01)
        yield x + step


@dyorc.workflow
async def ticked(x: Number, num_parts: int) -> AsyncIterator[Number]:
    """Yields what a program yields."""
    async for part in ticking(x, num_parts):
        yield part


@dyorc.workflow
async def ticked_once(x: Number, num_parts: int) -> AsyncIterator[Number]:
    """Yields what a program with effects yields."""
    async for part in ticking_once(x, num_parts):
        yield part


ALL = (squared, doubled, noted, counted, ticked, ticked_once)
