"""Many requests in a row: the orchestrator does not grow. `make soak` is the long version, on real servers.

In a separate process: in one in which a thousand tests have left holes in the heap, its size says nothing.
"""

import json
import subprocess
import sys


def test_memory_and_descriptors_stay_flat() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.soak_process"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    grown = json.loads(done.stdout.splitlines()[-1])
    print(grown)
    assert grown["memory_growth_mb"] < 8
    assert grown["object_growth"] < grown["num_requests"] / 10
    assert grown["fd_growth"] == 0
    assert grown["num_requests_left"] == 0
