"""T(n) of each program of a workload: how long a batch of n takes, measured in a separate process.

    python -m benchmarks.oracle.costs cascade        # prints {program: [[n, seconds], ...]}

Programs are measured alone, on the inputs of real requests, without what a serving system does before and after, such as padding
and stacking. The time is the thread's CPU time, as in `benchmarks.meter`, so programs use one thread.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.devices.times import on_devices
from benchmarks.oracle.recording import record
from benchmarks.workloads import workload as workload_named
from benchmarks.workloads.base import LoadedProgram, Program, Tensors, Workload

Costs: TypeAlias = "dict[str, list[tuple[int, float]]]"
"""For each program, batch sizes and seconds, both ascending."""
_ROOT = Path(__file__).resolve().parents[2]
_NUM_REQUESTS = 48
_SEED = 7
_MIN_REPETITIONS = 7
_MIN_S = 0.3
_WARM_UP_S = 0.05


def measured(name: str) -> Costs:
    """Returns the costs of a workload's programs, measured by a process that does nothing else.

    Raises:
        RuntimeError: If that fails.
    """
    command = [sys.executable, "-m", "benchmarks.oracle.costs", name]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return parsed(json.loads(done.stdout))


def device_costs(workload: Workload) -> Costs:
    """Returns T(n) of the programs on accelerators of their own, from published figures."""
    times = on_devices(workload.name).times
    sizes = {name: batch_sizes(program.max_batch_size) for name, program in workload.programs.items()}
    return {name: [(size, times[name].batch_s(size)) for size in sizes[name]] for name in times}


def parsed(content: Mapping[str, Sequence[Sequence[float]]]) -> Costs:
    """Reads costs from JSON."""
    return {name: [(int(size), float(seconds)) for size, seconds in times] for name, times in content.items()}


def measure(workload: Workload, num_requests: int = _NUM_REQUESTS) -> Costs:
    """Measures in this process. Programs that no request calls are left out."""
    items = record(workload, workload.draw(num_requests, _SEED)).items
    return {name: _times(workload, name, items[name]) for name in workload.programs if items[name]}


def _times(workload: Workload, name: str, items: Sequence[Tensors]) -> list[tuple[int, float]]:
    stopwatch, program = _watched(workload, name)
    rng = np.random.default_rng(_SEED)
    sizes = batch_sizes(workload.programs[name].max_batch_size)
    return rising([(size, _seconds(stopwatch, program, size, items, rng)) for size in sizes])


def batch_sizes(max_batch_size: int) -> list[int]:
    """Returns 1, 2, 4, ... and the largest size."""
    return [*(2**power for power in range(max_batch_size.bit_length()) if 2**power < max_batch_size), max_batch_size]


def rising(times: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Returns the nearest times (by least squares) that never fall, since a larger batch does not really take less time."""
    from scipy.optimize import isotonic_regression

    return [
        (size, float(seconds)) for (size, _), seconds in zip(times, isotonic_regression([s for _, s in times]).x, strict=True)
    ]


@dataclass
class _Stopwatch:
    """Times a program's function alone."""

    seconds: float = 0.0

    def watch(self, function: Callable[..., Tensors]) -> Callable[..., Tensors]:
        def run(**inputs: np.ndarray[Any, Any]) -> Tensors:
            began_s = time.thread_time()
            outputs = function(**inputs)
            self.seconds += time.thread_time() - began_s
            return outputs

        return run


def _watched(workload: Workload, name: str) -> tuple[_Stopwatch, LoadedProgram]:
    stopwatch = _Stopwatch()
    program: Program = workload.programs[name]
    watched = replace(program, make=lambda: stopwatch.watch(program.make()))
    return stopwatch, LoadedProgram(replace(workload, programs={**workload.programs, name: watched}), name)


def _seconds(
    stopwatch: _Stopwatch, program: LoadedProgram, size: int, items: Sequence[Tensors], rng: np.random.Generator
) -> float:
    """Returns the median time of a batch of `size`, over batches drawn from `items`."""
    times_s: list[float] = []
    warm_up_until_s = time.perf_counter() + _WARM_UP_S
    until_s = warm_up_until_s + _MIN_S
    while len(times_s) < _MIN_REPETITIONS or time.perf_counter() < until_s:
        is_warm = time.perf_counter() >= warm_up_until_s
        batch = list(islice(cycle([items[at] for at in rng.permutation(len(items))]), size))
        stopwatch.seconds = 0.0
        program.run_items(batch)
        if is_warm:
            times_s.append(stopwatch.seconds)
    return float(np.median(times_s))


if __name__ == "__main__":
    print(json.dumps(measure(workload_named(sys.argv[1]))))
