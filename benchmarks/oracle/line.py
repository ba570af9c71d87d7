"""The oracle line of a workload, for the table. A separate process computes it before any server runs.

python -m benchmarks.oracle.line cascade POOL.npz '{"low": 600}' 2000
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.oracle.bound import lower_bound
from benchmarks.oracle.costs import device_costs, measured
from benchmarks.oracle.recording import record
from benchmarks.serving import ROOT, BenchmarkError
from benchmarks.table.records import OracleRecord
from benchmarks.workloads import workload
from loadgen.pool import Pool

_NUM_RECORDED = 256


@dataclass(frozen=True)
class OracleLine:
    """What the programs' own times allow.

    Attributes:
        bounds: The oracle's figures, by load.
        costs_ms: For each program, batch sizes and how long a batch takes, in milliseconds.
    """

    bounds: dict[str, OracleRecord]
    costs_ms: dict[str, list[tuple[int, float]]]


def oracle_line(name: str, pool: Path, rates: Mapping[str, float], num_requests: int, *, on_devices: bool = False) -> OracleLine:
    """Returns the line at some rates (requests per second, by load), with this many requests at each, on this machine's cores.

    Args:
        on_devices: Whether each program has its own accelerator instead, and takes as long as that.

    Raises:
        BenchmarkError: If it cannot be computed, with the reason.
    """
    command = [
        sys.executable,
        "-m",
        "benchmarks.oracle.line",
        name,
        str(pool),
        json.dumps(rates),
        str(num_requests),
        str(on_devices),
    ]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if finished.returncode:
        raise BenchmarkError(f"no oracle line for {name}: {finished.stderr.strip()[-2000:]}")
    figures = json.loads(finished.stdout)
    return OracleLine(
        bounds={load: OracleRecord(**bound) for load, bound in figures["bounds"].items()},
        costs_ms={program: [(size, ms) for size, ms in costs] for program, costs in figures["costs_ms"].items()},
    )


def _main(name: str, pool: str, rates: str, num_requests: str, on_devices: str) -> None:
    chosen = workload(name)
    has_devices = on_devices == str(True)
    costs = device_costs(chosen) if has_devices else measured(name)
    trees = record(chosen, Pool.load(Path(pool)).inputs[:_NUM_RECORDED]).trees
    num_cores = None if has_devices else len(os.sched_getaffinity(0))
    bounds: dict[str, dict[str, float]] = {}
    for load, rate_rps in json.loads(rates).items():
        bound = asdict(lower_bound(chosen, trees, costs, rate_rps, int(num_requests), num_cores=num_cores))
        bounds[load] = {field: bound[field] for field in ("p50_ms", "p99_ms", "device_ms_per_request")}
    costs_ms = {program: [(size, round(seconds * 1e3, 4)) for size, seconds in times] for program, times in costs.items()}
    print(json.dumps({"bounds": bounds, "costs_ms": costs_ms}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
