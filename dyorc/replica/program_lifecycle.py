"""Loads a program and runs its first batch, and frees memory once a program was dropped.

In the first batch, libraries choose algorithms, compile kernels and take memory; it runs before any request.
"""

import contextlib
import gc
import inspect
import os
import sys
import time
import weakref
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import structlog

from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticSpec, StaticValue
from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.core.arrays import Array, numpy_dtype
from dyorc.replica.batch_results import BatchError
from dyorc.replica.executor import ProgramExecutor
from dyorc.system import malloc

_log = structlog.get_logger("dyorc.replica")

_FREED_S, _POLL_S = 0.5, 0.02
"""A dropped program's thread ends first, which refers to it."""


def load_and_warm_up(program: Program) -> ProgramExecutor:
    """Loads a program that computes, and runs a batch of zeros if it is a class without effects. The result does not matter. A
    program with graphs is captured instead, which runs it, too.

    Raises:
        ProgramLoadError: If it cannot be loaded.
    """
    executor = ProgramExecutor.load(program)
    if program.options.cuda_graphs and executor.device is not None:
        executor.capture_graphs()
        return executor
    statics = _statics(program)
    if not program.options.warmup or not program.options.pure or statics is None or executor.is_plain_function:
        return executor
    if any(spec.is_resident or isinstance(spec, ValueSpec) for spec in program.signature.inputs):
        return executor  # only a program of its group makes residents, and no structured value is a zero
    columns = [_zeros(program, spec) for spec in program.signature.inputs]
    result = executor.run(columns, statics)
    if isinstance(result, BatchError):
        _log.debug("warmup_failed", program=program.name, error=f"{result.error_type}: {result.message}")
    return executor


def _statics(program: Program) -> list[StaticValue] | None:
    """Returns the default of each static parameter; None if one has none."""
    statics = [each.default for each in program.signature.parameters if isinstance(each, StaticSpec)]
    return None if inspect.Parameter.empty in statics else statics


def _zeros(program: Program, spec: TensorSpec) -> list[Array]:
    """Returns one call's input: declared sizes as given, padded ones at their smallest bucket, all others 1."""
    padding = program.options.pad
    buckets = padding.buckets if padding else {}
    shape = [dim.size if dim.size is not None else buckets.get(dim.name or "", (1,))[0] for dim in spec.dims]
    zeros = np.zeros(shape, numpy_dtype(spec.dtype))
    if zeros.dtype == object:
        zeros.fill(b"")
    return [zeros]


class Leftovers:
    """Watches what a program has loaded, without keeping it: most of it is freed once nothing refers to it, without a collection.

    Args:
        function: The program's function, which loads nothing, or its object.
    """

    def __init__(self, function: Any) -> None:
        loaded = [] if inspect.isfunction(function) else [function, *getattr(function, "__dict__", {}).values()]
        self._watched: list[weakref.ref[Any]] = []
        for each in loaded:
            with contextlib.suppress(TypeError):  # lists and numbers cannot be watched
                if not isinstance(each, (ModuleType, FunctionType, type)):
                    self._watched.append(weakref.ref(each))

    def wait(self, timeout_s: float) -> bool:
        """Waits until all of it is freed. Returns whether it is. Blocking."""
        until_s = time.monotonic() + timeout_s
        while not (is_freed := all(each() is None for each in self._watched)) and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        return is_freed


def free_memory(leftovers: Leftovers | None = None) -> None:
    """Frees unreferenced memory: cycles, torch's cache on the device, and free memory of the allocator. Blocking.

    Args:
        leftovers: Of a program that was dropped while requests go on, which a collection of garbage would hold up: there is none
            if all that the program has loaded is freed, soon, without it.
    """
    if leftovers is None or not leftovers.wait(_FREED_S):
        gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    malloc.give_back()


def process_age_s() -> float:
    """Returns how long ago this process was started or forked, in seconds; 0 if unknown."""
    if sys.platform != "linux":
        return 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    return 0.0
