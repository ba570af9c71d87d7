"""A program that takes long, and programs that read the stream of what it makes."""

import time
from collections.abc import AsyncIterator, Iterator

import numpy as np
from jaxtyping import Int

import dyorc

Number = Int[np.ndarray, ""]


@dyorc.program(batched=False)
def heavy(x: Number) -> Number:
    time.sleep(0.05)
    return x * x


@dyorc.workflow
async def squares(n: Number) -> AsyncIterator[Number]:
    for _ in range(10):
        yield heavy(n)


@dyorc.program(name="reader", batched=False)
def passthrough(numbers: Iterator[Number]) -> Iterator[Number]:
    yield from numbers


@dyorc.program(name="reader", batched=False)
async def passthrough_async(numbers: AsyncIterator[Number]) -> AsyncIterator[Number]:
    async for number in numbers:
        yield number


@dyorc.workflow
async def plain(n: Number) -> AsyncIterator[Number]:
    async for number in passthrough(squares(n)):
        yield number


@dyorc.workflow
async def waiting(n: Number) -> AsyncIterator[Number]:
    async for number in passthrough_async(squares(n)):
        yield number
