"""Counts what programs do, in the same way for all systems: batches by size, and their device time.

A program is counted in the process that runs it, whatever system started that process, into a small file in the folder that the
environment variable `FOLDER_VARIABLE` names; nothing is counted without it. Where the device is the processor, device time is
the CPU time of the thread that runs the program (programs use one thread). Unlike wall-clock time, it does not grow when others
use the processor too. An emulated accelerator counts its own time. `read` adds the files up, even while they are being written:
on the processors that this runs on, an aligned number of 8 bytes is never half-written. The peers' servers import this module,
so it needs only NumPy.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

FOLDER_VARIABLE = "BENCHMARK_METER"
MAX_SIZE = 255
"""Larger batches are counted as batches of this many items."""
_NUM_CELLS = MAX_SIZE + 2
"""An array of int64: nanoseconds, then the number of batches of each size, from 0."""


class Meter:
    """The counts of one program in one process.

    Args:
        clock_ns: Device time, so far.
    """

    def __init__(self, program: str, clock_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self._clock_ns = clock_ns
        folder = os.environ.get(FOLDER_VARIABLE)
        self._cells: np.ndarray[Any, np.dtype[np.int64]] = np.zeros(_NUM_CELLS, np.int64)
        if folder:
            with (Path(folder) / f"{program}.{os.getpid()}.{uuid4().hex[:8]}").open("w+b") as file:
                file.truncate(8 * _NUM_CELLS)
                self._cells = np.frombuffer(mmap.mmap(file.fileno(), 8 * _NUM_CELLS), np.int64)

    def run(self, function: Callable[..., Any], num_items: int, **tensors: Any) -> Any:
        """Calls a function and counts it as a batch."""
        began_ns = self._clock_ns()
        try:
            return function(**tensors)
        finally:
            self._cells[0] += self._clock_ns() - began_ns
            self._cells[1 + min(num_items, MAX_SIZE)] += 1


Counted = Mapping[str, "tuple[float, dict[int, int]]"]
"""Seconds of device time and batches by size, by program."""


def read(folder: Path) -> dict[str, tuple[float, dict[int, int]]]:
    """Returns what has been counted in a folder so far, over all processes."""
    seconds: dict[str, float] = defaultdict(float)
    sizes: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for path in folder.iterdir():
        cells = np.fromfile(path, np.int64)
        if len(cells) != _NUM_CELLS:
            continue  # just being made
        program = path.name.rsplit(".", 2)[0]
        seconds[program] += float(cells[0]) / 1e9
        for size in np.flatnonzero(cells[1:]).tolist():
            sizes[program][size] += int(cells[1 + size])
    return {program: (seconds[program], dict(sizes[program])) for program in seconds}


def difference(before: Counted, after: Counted) -> dict[str, tuple[float, dict[int, int]]]:
    """Returns what was counted between two readings."""
    between: dict[str, tuple[float, dict[int, int]]] = {}
    for program, (seconds, sizes) in after.items():
        seconds_before, sizes_before = before.get(program, (0.0, {}))
        new = {size: number - sizes_before.get(size, 0) for size, number in sizes.items()}
        between[program] = (seconds - seconds_before, {size: number for size, number in new.items() if number})
    return between
