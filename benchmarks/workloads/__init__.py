"""The workloads, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.workloads.base import Workload

NAMES = ("cascade", "ocr", "guarded", "router", "loop", "chain", "fanout")


def workload(name: str) -> Workload:
    """Returns the workload called `name`, which is `workload.WORKLOAD` in its folder.

    Raises:
        ValueError: If there is none.
    """
    if name not in NAMES:
        raise ValueError(f"there is no workload {name!r}; there are {', '.join(NAMES)}")
    return import_module(f"benchmarks.workloads.{name}.workload").WORKLOAD
