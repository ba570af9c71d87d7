"""`dyorc serve --in-process`: what is different without Ray. `test_serving.py` tests what is the same."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import dyorc
from dyorc.testing import ServerProcess
from tests import oip
from tests.deadlines import wait_until
from tests.e2e.conftest import Tenants
from tests.leaks import no_leaks
from tests.server_process import client_of, server_of, target

pytestmark = pytest.mark.together

X = np.array([1, 2, 3, 4], np.float32)


def test_ray_is_not_started(cell: ServerProcess) -> None:
    assert cell.pids() == [cell.process.pid]
    maps = Path(f"/proc/{cell.process.pid}/maps").read_text()
    assert "/ray/" not in maps
    assert "Ray" not in cell.output


def test_workflows_answer_while_their_programs_move_to_the_loop(cell: ServerProcess, tenants: Tenants) -> None:
    with dyorc.Client(cell.url, api_key=tenants.key) as client, ThreadPoolExecutor(8) as threads:
        for y in threads.map(lambda number: client.infer("double_until_large", x=X + number % 20), range(200)):
            assert y.max() >= 100
    with client_of(cell, tenants.key) as http:
        status = http.get("/status").json()
        assert status["link"]["num_batches_inline"] > 0
        statistics = http.get("/v2/models/double/stats").json()["model_stats"][0]
    assert statistics["inference_count"] >= 200
    assert statistics["inference_stats"]["compute_infer"]["ns"] > 0


def test_it_stops_while_it_still_loads() -> None:
    with no_leaks(), server_of([target("slow", "never_ready")], in_process=True) as server:
        server.wait_for("slow_to_load: loading")
        server.stop(signal.SIGTERM)
        assert server.process.returncode == 0, server.output
        assert "Traceback" not in server.output
        assert server.leftovers() == []


def test_one_program_that_cannot_load_leaves_the_others_alone() -> None:
    targets = [target("faulty", "needs_weights"), target("arithmetic", "quadruple")]
    with server_of(targets, in_process=True) as server, client_of(server) as client:
        wait_until(lambda: client.get("/v2/models/quadruple/ready").status_code == 200, "the good one is ready")
        body = oip.json_body({"x": X})
        failed = client.post("/v2/models/needs_weights/infer", content=body.content)
        assert oip.error_text(failed) == "program 'weightless' failed: FileNotFoundError: no weights at model.safetensors"
        good = client.post("/v2/models/quadruple/infer", content=body.content)
        np.testing.assert_array_equal(oip.read(good).outputs["output"], X * 4)
