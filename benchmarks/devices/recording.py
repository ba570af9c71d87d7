"""Runs the models of a workload once over its requests, and keeps what they return, in a folder that git ignores.

python -m benchmarks.devices.recording cascade        # prints the folder
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.devices.program import REQUESTS_FILE, TIMES_FILE
from benchmarks.devices.recorded import Recorded, key_of
from benchmarks.devices.times import on_devices
from benchmarks.serving import ROOT, BenchmarkError
from benchmarks.table.pools import pool_file
from benchmarks.workloads import workload
from benchmarks.workloads.base import Program, Tensors, Workload, answer_alone
from loadgen.pool import Pool

_FOLDER = ROOT / "benchmarks" / ".recordings"


def recordings(name: str) -> Path:
    """Returns the folder with a workload's requests and its programs' results. A separate process makes it if need be.

    Raises:
        BenchmarkError: If that fails, with the reason.
    """
    folder = _folder(name)
    if not folder.is_dir():
        command = [sys.executable, "-m", "benchmarks.devices.recording", name]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if finished.returncode or not folder.is_dir():
            raise BenchmarkError(f"the programs of {name} could not be recorded: {finished.stderr.strip()[-2000:]}")
    times = {program: (time.base_s, time.item_s) for program, time in on_devices(name).times.items()}
    (folder / TIMES_FILE).write_text(json.dumps(times))  # always, since they do not depend on the recording
    return folder


def record(served: Workload, pool: Pool, folder: Path) -> None:
    """Runs the requests of a pool through a workload, and writes them and the results of each program.

    Raises:
        ValueError: If two inputs with different results cannot be told apart, or no request calls one of the programs.
    """
    rows: dict[str, dict[bytes, dict[str, np.ndarray[Any, Any]]]] = {name: {} for name in served.programs}
    watched = {name: _watched(program, rows[name]) for name, program in served.programs.items()}
    answers, branches = answer_alone(replace(served, programs=watched), pool.inputs)
    Pool(inputs=pool.inputs, answers=answers, branches=branches, tolerance=pool.tolerance).save(folder / REQUESTS_FILE)
    for name, recorded in rows.items():
        if not recorded:
            raise ValueError(f"no request calls {name}, so there is nothing that it could return")
        Recorded(recorded).save(folder / f"{name}.npz")


def _watched(program: Program, rows: dict[bytes, dict[str, np.ndarray[Any, Any]]]) -> Program:
    """Returns a program that keeps what it returns, item by item."""

    def make() -> Callable[..., Tensors]:
        function = program.make()

        def run(**inputs: np.ndarray[Any, Any]) -> Tensors:
            outputs = function(**inputs)
            for at in range(len(next(iter(inputs.values())))):
                key = key_of({name: array[at, ...] for name, array in inputs.items()}, bool(program.widths))
                row = {name: np.array(array[at, ...]) for name, array in outputs.items()}
                if not _is_same(rows.setdefault(key, row), row):
                    raise ValueError("two inputs of a program have the same key and different results")
            return outputs

        return run

    return replace(program, make=make)


def _is_same(outputs: Mapping[str, np.ndarray[Any, Any]], other: Mapping[str, np.ndarray[Any, Any]]) -> bool:
    return all(np.array_equal(array, other[name]) for name, array in outputs.items())


def _folder(name: str) -> Path:
    num_requests = on_devices(name).num_requests
    return _FOLDER / f"{pool_file(name).stem}{f'-{num_requests}' if num_requests else ''}"


def _make(name: str) -> Path:
    pool, num_requests = Pool.load(pool_file(name)), on_devices(name).num_requests
    some = Pool(inputs=pool.inputs[:num_requests], tolerance=pool.tolerance)
    folder = _folder(name)
    being_written = folder.with_suffix(".part")
    shutil.rmtree(being_written, ignore_errors=True)
    for old in folder.parent.glob(f"{name}-*"):
        shutil.rmtree(old)
    being_written.mkdir(parents=True)
    record(workload(name), some, being_written)
    being_written.replace(folder)
    return folder


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(_make(each))
