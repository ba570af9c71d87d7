"""The peers of the benchmark that are installed: each answers the cascade right, and leaves no process and no file."""

import http.client
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from benchmarks import meter, wire
from dyorc.testing import ServerProcess
from loadgen.pool import Pool, Tensors
from tests.deadlines import TIMEOUT_S

_ROOT = Path(__file__).parents[2]
_NUM_REQUESTS = 48
_NUM_CLIENTS = 8
_PEERS = {"ray_serve": ["--mode", "default"], "bentoml": [], "litserve": [], "mosec": []}
"""Triton is missing: its client does the branching, see the tests of its own."""

_DRAW = """
import sys
from pathlib import Path
from benchmarks.workloads import workload
from benchmarks.workloads.base import answer_alone
from loadgen.pool import Pool

cascade = workload("cascade")
inputs = cascade.draw(int(sys.argv[2]), 1)
answers, branches = answer_alone(cascade, inputs)
Pool(inputs=inputs, answers=answers, branches=branches, tolerance=cascade.tolerance).save(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("peer", _PEERS)
def test_a_peer_answers_the_cascade_correctly_and_leaves_nothing(peer: str, tmp_path: Path) -> None:
    python = _ROOT / ".venv-peers" / peer / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{peer} is not installed in .venv-peers")
    pool = _pool(tmp_path / "pool.npz")
    assert set(pool.branches) == {"small", "large"}
    counted = tmp_path / "meter"
    counted.mkdir()

    command = [str(python), "-m", f"benchmarks.peers.{peer}.server", *_PEERS[peer], "--workload", "cascade", "--port", "0"]
    home = tmp_path / "home"
    home.mkdir()
    environment = {"PYTHONPATH": str(_ROOT), "HOME": str(home), meter.FOLDER_VARIABLE: str(counted)}
    with ServerProcess(command, environment=environment, folder=_ROOT) as server:
        server.wait_until_ready()
        before = meter.read(counted)
        with ThreadPoolExecutor(_NUM_CLIENTS) as threads:
            found = list(threads.map(partial(_infer, server.url), pool.inputs))
        new = meter.difference(before, meter.read(counted))
        server.stop(signal.SIGTERM)
        assert server.process.returncode == 0, server.output
        assert server.leftovers() == []
    assert list(home.iterdir()) == []

    for answer, expected in zip(found, pool.answers, strict=True):
        assert answer.keys() == expected.keys()
        np.testing.assert_allclose(answer["probabilities"], expected["probabilities"], atol=pool.tolerance)
    assert {name: sum(size * number for size, number in sizes.items()) for name, (_, sizes) in new.items()} == {
        "small": _NUM_REQUESTS,
        "large": list(pool.branches).count("large"),
    }


def _pool(path: Path) -> Pool:
    """Makes requests and their answers in a separate process: PyTorch keeps threads, which would count as left behind."""
    subprocess.run([sys.executable, "-c", _DRAW, str(path), str(_NUM_REQUESTS)], cwd=_ROOT, check=True)
    return Pool.load(path)


def _infer(url: str, request: Tensors) -> dict[str, np.ndarray[Any, Any]]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    try:
        connection.request("POST", "/infer", wire.pack(request), {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return wire.unpack(body)
    finally:
        connection.close()
