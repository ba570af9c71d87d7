"""How fast the machine is at a moment: a fixed loop of Python, and a fixed product of matrices. Others may use its cores too."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import msgspec
import numpy as np

_NUM_STEPS = 40_000
_SIDE = 256
_NUM_TRIES = 5


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """How long the two take, in milliseconds: medians of a few tries."""

    python_ms: float
    blas_ms: float


def speed(clock_s: Callable[[], float] = time.perf_counter) -> Speed:
    """Measures the machine's speed; takes 20 to 50 ms."""
    matrix = np.full((_SIDE, _SIDE), 0.5, np.float32)
    return Speed(python_ms=_ms(_python, clock_s), blas_ms=_ms(lambda: matrix @ matrix @ matrix, clock_s))


def _ms(work: Callable[[], object], clock_s: Callable[[], float]) -> float:
    times_ms: list[float] = []
    for _ in range(_NUM_TRIES):
        began_s = clock_s()
        work()
        times_ms.append((clock_s() - began_s) * 1e3)
    return round(median(times_ms), 4)


def _python() -> int:
    total = 0
    for step in range(_NUM_STEPS):
        total += step & 7
    return total
