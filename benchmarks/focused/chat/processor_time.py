"""Processor time of all processes that this one has started, directly or not. Linux only."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path


def cpu_of_descendants_s() -> float:
    """Returns the seconds that descendants that still run have used so far; with `adopt_orphans`, also ones without a parent."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children[int(fields[1])].append(int(entry.name))
            ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
    total, waiting = 0, [os.getpid()]
    while waiting:
        found = children[waiting.pop()]
        total += sum(ticks[pid] for pid in found)
        waiting += found
    return total / os.sysconf("SC_CLK_TCK")
