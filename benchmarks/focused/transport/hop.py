"""The contract of every way to move a tensor, and how its hops are timed.

A hop begins with a producer process that has an array in its own private memory, as a program returns it, and ends when a
consumer process has an array that it can read and its tiny reply has reached the producer. Imported by the benchmark's process
and by its children; no threads.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
"""A tensor's bytes. Its type and shape do not matter here."""

_POOL_BYTES = 64 * 2**20
_MAX_ARRAYS, _MIN_ARRAYS = 4, 2

_stamps = itertools.count(1)


class HopError(Exception):
    """A consumer did not get the bytes that its producer had."""


class Hop(Protocol):
    """One way from one process to another."""

    name: str

    def start(self) -> None:
        """Starts what it needs."""
        ...

    def time_hops(self, num_bytes: int, num_hops: int) -> list[float]:
        """Makes hops of `num_bytes`, one after another, and returns the microseconds of each."""
        ...

    def copies(self, num_bytes: int) -> int | None:
        """The number of copies of the bytes on their way, including the kernel's; None if they were not counted."""
        ...

    def stop(self) -> None:
        """Ends everything that was started, even if the start failed half-way. May be called twice."""
        ...


class Pool:
    """A producer's warm arrays of each size, used in turn: four up to 16 MiB, two of 64 MiB."""

    def __init__(self) -> None:
        self._arrays: dict[int, list[Bytes]] = {}

    def arrays(self, num_bytes: int) -> Sequence[Bytes]:
        """Returns the arrays of a size, always the same ones."""
        if num_bytes not in self._arrays:
            number = min(_MAX_ARRAYS, max(_MIN_ARRAYS, _POOL_BYTES // num_bytes))
            self._arrays[num_bytes] = [np.full(num_bytes, at, np.uint8) for at in range(number)]
        return self._arrays[num_bytes]


def time_hops(carry: Callable[[Bytes], Sequence[int] | Bytes], arrays: Sequence[Bytes], num_hops: int) -> list[float]:
    """Returns the microseconds of each hop. Outside of the measured time, every array gets a new first and last byte, and the
    reply is compared.

    Args:
        carry: Makes one hop and returns what the consumer saw: bytes that begin and end like the array.

    Raises:
        HopError: If the consumer saw other bytes.
    """
    taken_us: list[float] = []
    for _, source in zip(range(num_hops), itertools.cycle(arrays), strict=False):
        stamp = next(_stamps) % 251  # a prime: it differs from what the array had before, whatever the number of arrays
        source[0] = source[-1] = stamp
        began_ns = time.perf_counter_ns()
        reply = carry(source)
        taken_us.append((time.perf_counter_ns() - began_ns) / 1e3)
        if len(reply) == 0 or reply[0] != stamp or reply[-1] != stamp:
            raise HopError(f"of {source.nbytes} bytes, both ends are {stamp}; the reply is {bytes(reply[:2])!r}")
    return taken_us


def reply_to(received: Bytes) -> bytes:
    """Returns the consumer's two bytes: the first and last that it received."""
    return bytes((received[0], received[-1]))


def format_bytes(num_bytes: int) -> str:
    """Returns a size in words, like ``64 KiB``."""
    return f"{num_bytes >> 20} MiB" if num_bytes >= 2**20 else f"{num_bytes >> 10} KiB"
