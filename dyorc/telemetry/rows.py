"""Lays out bars in rows so that those of a row follow each other or nest, as viewers of traces demand."""

import heapq
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def in_rows(bars: Iterable[tuple[int, int, T]]) -> list[tuple[int, T]]:
    """Returns each thing with the number of its row: the first in which nothing else is at its time.

    Args:
        bars: Begin, end, and what it is.
    """
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    placed: list[tuple[int, T]] = []
    num_rows = 0
    for start_ns, end_ns, what in sorted(bars, key=lambda bar: (bar[0], -bar[1])):
        while busy and busy[0][0] <= start_ns:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row, num_rows = num_rows, num_rows + 1
        heapq.heappush(busy, (end_ns, row))
        placed.append((row, what))
    return placed
