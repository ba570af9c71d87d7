"""Programs that yield, and read each other's streams, in replicas of their own."""

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

import dyorc

Number = Int[np.ndarray, ""]
Large = Float[np.ndarray, "2000000"]
NOTES = "DYORC_TEST_RELAYED_NOTES"
"""The variable that names a file, in which programs note what they do."""


def note(text: str) -> None:
    """Adds a line to the notes."""
    if path := os.environ.get(NOTES):
        with Path(path).open("a") as file:
            file.write(f"{text}\n")


@dyorc.program(batched=False, max_ongoing=8)
def numbers(first: Number, num_parts: int, pause_s: float) -> Iterator[Number]:
    """Yields the numbers from the first, after a pause each."""
    try:
        for at in range(num_parts):
            time.sleep(pause_s)
            yield first + at
    finally:
        note(f"numbers from {first} closed")


@dyorc.program(batched=False, max_ongoing=8)
async def doubled(parts: AsyncIterator[Number]) -> AsyncIterator[Number]:
    """Yields twice what it reads."""
    try:
        async for part in parts:
            yield 2 * part
    finally:
        note("doubled closed")


@dyorc.program(batched=False, max_ongoing=8)
async def added(parts: AsyncIterator[Number]) -> AsyncIterator[Number]:
    """Yields the sum of what it has read so far."""
    total = 0
    async for part in parts:
        total += int(part)
        yield np.array(total)


@dyorc.program(batched=False, max_ongoing=8)
async def last(parts: AsyncIterator[Number]) -> Number:
    """Returns what it reads last."""
    found = np.array(-1)
    async for part in parts:
        found = part
    return found


@dyorc.program(batched=False, max_ongoing=8)
def pictures(first: Number, num_parts: int) -> Iterator[Large]:
    """Yields 8 MB each, from one buffer that it goes on writing to."""
    buffer = np.empty(2_000_000, np.float32)
    for at in range(num_parts):
        buffer[:] = int(first) + at
        yield buffer


@dyorc.program(batched=False, max_ongoing=8)
async def brighter(parts: AsyncIterator[Large]) -> AsyncIterator[Large]:
    """Adds one to what it reads, in place."""
    async for part in parts:
        part += 1
        yield part


@dyorc.program(batched=False, max_ongoing=8, pure=False)
def effects(first: Number, num_parts: int, pause_s: float) -> Iterator[Number]:
    """Yields numbers, and must not be run again."""
    note(f"effects from {first} begun")
    for at in range(num_parts):
        time.sleep(pause_s)
        yield first + at


@dyorc.workflow
async def count(first: Number, num_parts: int, pause_s: float) -> AsyncIterator[Number]:
    """Yields what the first program yields."""
    async for part in numbers(first, num_parts, pause_s):
        yield part


@dyorc.workflow
async def act(first: Number, num_parts: int, pause_s: float) -> AsyncIterator[Number]:
    """Yields what a program with effects yields."""
    async for part in effects(first, num_parts, pause_s):
        yield part


@dyorc.workflow
async def relay(first: Number, num_parts: int, pause_s: float) -> AsyncIterator[Number]:
    """Yields what comes out of three programs, of which two read what the one before them yields."""
    async for part in added(doubled(numbers(first, num_parts, pause_s))):
        yield part


@dyorc.workflow
async def relay_to_the_end(first: Number, num_parts: int, pause_s: float) -> tuple[Number, Number]:
    """Returns the last part of a stream, and that of another that reads it."""
    parts = numbers(first, num_parts, pause_s)
    return last(parts), last(doubled(parts))


@dyorc.workflow
async def gallery(first: Number, num_parts: int) -> AsyncIterator[Large]:
    """Yields parts of 8 MB, which went through two programs."""
    async for part in brighter(pictures(first, num_parts)):
        yield part
