"""How many processors and how much memory this process may use, in a container too. Only the standard library."""

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_NO_LIMIT_BYTES = 2**60
"""Version 1 of cgroups says a number above that where there is no limit."""


def num_processors() -> int:
    """Returns how many processors this process may use: by its affinity, and by its container's quota, rounded up."""
    quota = processor_quota()
    return num_by_affinity() if quota is None else max(1, min(num_by_affinity(), math.ceil(quota)))


def num_by_affinity() -> int:
    """Returns how many processors the scheduler may give to this process; all where the system cannot say."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def processor_quota() -> float | None:
    """Returns how many processors' time this process's cgroups allow it; None without a limit."""
    quotas: list[float] = []
    for folder in _groups("cpu"):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()  # version 2
            quotas.append(int(quota) / int(period))  # not if it is "max"
        with contextlib.suppress(OSError, ValueError):
            quota_us = int((folder / "cpu.cfs_quota_us").read_text())
            if quota_us > 0:
                quotas.append(quota_us / int((folder / "cpu.cfs_period_us").read_text()))
    return min(quotas, default=None)


def memory_limit_bytes() -> int | None:
    """Returns how much memory this process's cgroups allow it; None without a limit."""
    limits: list[int] = []
    for folder in _groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # "max" is no number
                limits.append(int((folder / name).read_text()))
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def _groups(controller: str) -> Iterator[Path]:
    """Yields the folders of this process's cgroups and of all above them. In a container, the root is often the container's."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup") / controllers  # version 2 has no controllers here
        for folder in (root / path.lstrip("/"), *(root / path.lstrip("/")).parents):
            if folder == root.parent:
                break
            if folder.is_dir():
                yield folder
