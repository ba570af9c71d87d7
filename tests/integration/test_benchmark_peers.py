"""The peers of the benchmark that are installed: each answers the cascade right, and leaves no process and no file."""

import http.client
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import meter, wire
from loadgen.pool import Pool, Tensors

_ROOT = Path(__file__).parents[2]
_END_TIMEOUT_S = 60.0
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
def test_a_peer_answers_the_cascade_right_and_leaves_nothing(peer: str, tmp_path: Path) -> None:
    python = _ROOT / ".venv-peers" / peer / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{peer} is not installed in .venv-peers")
    pool = _pool(tmp_path / "pool.npz")
    assert set(pool.branches) == {"small", "large"}
    counted = tmp_path / "meter"
    counted.mkdir()

    with tempfile.TemporaryDirectory(prefix="t-") as folder:  # short: servers make Unix sockets below it
        with _serving([str(python), "-m", f"benchmarks.peers.{peer}.server", *_PEERS[peer]], Path(folder), counted) as port:
            before = meter.read(counted)
            with ThreadPoolExecutor(_NUM_CLIENTS) as threads:
                found = list(threads.map(partial(_infer, port), pool.inputs))
            new = meter.difference(before, meter.read(counted))
        assert [str(path) for path in Path(folder).rglob("*")] == []
    assert _processes_with(str(counted)) == []

    for answer, expected in zip(found, pool.answers, strict=True):
        assert answer.keys() == expected.keys()
        np.testing.assert_allclose(answer["probabilities"], expected["probabilities"], atol=pool.tolerance)
    assert {name: sum(size * number for size, number in sizes.items()) for name, (_, sizes) in new.items()} == {
        "small": _NUM_REQUESTS,
        "large": list(pool.branches).count("large"),
    }


def _pool(path: Path) -> Pool:
    """Requests and their answers, from a process of its own: PyTorch keeps threads, and they would count as left behind."""
    subprocess.run([sys.executable, "-c", _DRAW, str(path), str(_NUM_REQUESTS)], cwd=_ROOT, check=True)
    return Pool.load(path)


@contextmanager
def _serving(command: list[str], folder: Path, counted: Path) -> Generator[int]:
    environment = os.environ | {
        "PYTHONPATH": str(_ROOT),
        "TMPDIR": str(folder),
        "HOME": str(folder),
        meter.FOLDER_VARIABLE: str(counted),
    }
    log = counted.with_name("log")
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [*command, "--workload", "cascade", "--port", "0"],
            cwd=_ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert server.stdout is not None
    with server.stdout:
        try:
            address = server.stdout.readline()
            assert address.startswith("Listening on http://127.0.0.1:"), log.read_text()[-5000:]
            assert server.stdout.readline().startswith("Ready"), log.read_text()[-5000:]
            yield int(address.rpartition(":")[2])
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(_END_TIMEOUT_S)
    assert server.returncode == 0, log.read_text()[-5000:]


def _infer(port: int, request: Tensors) -> dict[str, np.ndarray[Any, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/infer", wire.pack(request), {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return wire.unpack(body)
    finally:
        connection.close()


def _processes_with(text: str) -> list[str]:
    """The command lines of processes in whose environment a text occurs."""
    found: list[str] = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and text.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
