"""A server whose programs run on emulated accelerators answers like the models, takes their time, and can be stopped."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.devices.program import REQUESTS_FILE, TIMES_FILE
from benchmarks.table.measure import Bench, started
from benchmarks.table.records import OUR_CELL
from benchmarks.table.systems import SYSTEMS
from benchmarks.workloads import workload
from loadgen.load import Load
from loadgen.pool import Pool
from tests.deadlines import wait_until

BASE_MS = 3.0
_ROOT = Path(__file__).parents[2]
_RECORD = """
import sys
from pathlib import Path
from benchmarks.devices.recording import record
from benchmarks.workloads import workload
from loadgen.pool import Pool

cascade = workload("cascade")
record(cascade, Pool(inputs=cascade.draw(24, 5), tolerance=cascade.tolerance), Path(sys.argv[1]))
"""


def states(bench: Bench) -> set[str]:
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in bench.pids()}


def test_a_cell_serves_emulated_programs_and_can_be_stopped(tmp_path: Path) -> None:
    cascade = workload("cascade")
    recorded = subprocess.run([sys.executable, "-c", _RECORD, str(tmp_path)], cwd=_ROOT, capture_output=True, text=True)
    if "FileNotFoundError" in recorded.stderr:
        pytest.skip("cascade has no weights here")
    assert recorded.returncode == 0, recorded.stderr
    (tmp_path / TIMES_FILE).write_text(json.dumps(dict.fromkeys(cascade.programs, (BASE_MS / 1e3, 0.0))))
    pool = Pool.load(tmp_path / REQUESTS_FILE)
    assert set(pool.branches) == {"small", "large"}

    with started(SYSTEMS[OUR_CELL], cascade, pool, tmp_path) as bench:
        assert bench.warm_up() > 0
        bench.pause()
        wait_until(lambda: states(bench) == {"T"}, "all its processes are stopped")
        bench.resume()
        result = bench.run(Load(arrivals="closed", num_clients=1, warm_up_s=0.0, duration_s=0.5, drain_s=60.0))

    assert (result.counts.wrong, result.counts.failed, result.counts.unanswered) == (0, 0, 0)
    assert result.counts.correct > 0
    assert result.latency_ms.p50 >= BASE_MS
    assert sum(result.server.device_ms_per_request.values()) >= BASE_MS * 0.9  # a batch may end after the measured time
