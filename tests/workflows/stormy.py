"""A workflow of each kind, for the storm: its answer follows from its number, by plain Python (`tests.storm.kinds`)."""

import ctypes
import faulthandler
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TypedDict

import numpy as np
from jaxtyping import Int64

import dyorc

Number = Int64[np.ndarray, ""]
Numbers = Int64[np.ndarray, " batch"]
Words = Int64[np.ndarray, " n"]
BatchedWords = Int64[np.ndarray, "batch n"]


class Answer(TypedDict):
    """The outputs of `plain`."""

    y: Number
    pid: Number


MASK = 2**20 - 1
MAX_ROUNDS = 6


def note(folder: str, name: str, number: int) -> None:
    """Leaves a line in a file. A line is written at once, so that lines of several processes do not mix."""
    descriptor = os.open(Path(folder) / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{number}\n".encode())
    finally:
        os.close(descriptor)


@dyorc.program(max_batch_size=16)
def add(x: Numbers, step: int) -> Numbers:
    """Adds a step to each number. A negative one ends its process by a segmentation fault."""
    if (x < 0).any():
        faulthandler.disable()
        ctypes.string_at(0)
    return x + step


@dyorc.program(max_batch_size=16)
def sign(x: Numbers) -> Numbers:
    """Says in which process it runs."""
    return np.full(len(x), os.getpid())


@dyorc.program(max_batch_size=16)
def multiply(x: Numbers, y: Numbers) -> Numbers:
    """Multiplies, and keeps 20 bits."""
    return (x * y) & MASK


@dyorc.program(max_batch_size=4)
def mix(words: BatchedWords) -> BatchedWords:
    """Changes large tensors where they lie."""
    words *= 3
    words += np.arange(words.shape[1])
    return words


@dyorc.program(max_batch_size=1, pure=False)
def charge(x: Numbers, folder: str) -> Numbers:
    """Has an effect that must not happen twice."""
    note(folder, "charged", int(x[0]))
    return x + 1


@dyorc.program(max_batch_size=1, pure=False, idempotent=True)
def store(x: Numbers, folder: str) -> Numbers:
    """Has an effect that may be repeated."""
    note(folder, "stored", int(x[0]))
    return x + 2


@dyorc.program(batched=False, max_ongoing=8)
def count_up(x: Number, num_parts: int) -> Iterator[Number]:
    """Yields x, x + 1, ..."""
    for at in range(num_parts):
        yield x + at


@dyorc.workflow
async def plain(x: Number) -> Answer:
    """Makes two calls; one says where it ran."""
    return {"y": add(x, 1), "pid": sign(x)}


@dyorc.workflow
async def crash(x: Number) -> Number:
    """Makes one call, which ends its process."""
    return add(x, 0)


@dyorc.workflow
async def spread(x: Number) -> Number:
    """Makes four calls side by side, and brings their results together."""
    parts = [add(x, step) for step in range(4)]
    return multiply(multiply(parts[0], parts[1]), multiply(parts[2], parts[3]))


@dyorc.workflow
async def looped(x: Number) -> Number:
    """Goes on as long as results are odd, some rounds at most."""
    product = multiply(x, add(x, 4))
    for _ in range(MAX_ROUNDS - 1):
        if not await dyorc.when(product, lambda value: bool(value & 1)):
            break
        product = multiply(product, add(product, 4))
    return product


@dyorc.workflow
async def large(words: Words) -> Words:
    """Passes a tensor through two calls."""
    return mix(mix(words))


@dyorc.workflow
async def charged(x: Number, folder: str) -> Number:
    """Has an effect that must not happen twice, after a call that may be repeated."""
    return charge(add(x, 0), folder)


@dyorc.workflow
async def stored(x: Number, folder: str) -> Number:
    """Has an effect that may be repeated."""
    return store(x, folder)


@dyorc.workflow
async def streamed(x: Number, num_parts: int) -> AsyncIterator[Number]:
    """Yields what a program yields, each part changed by another."""
    async for part in count_up(x, num_parts):
        yield add(part, 7)


ALL = (plain, crash, spread, looped, large, charged, stored, streamed)
