"""`dyorc serve --in-process` as clients see it: a server without Ray."""

import asyncio
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyorc
from dyorc.client.retries import Retries
from dyorc.errors import AuthenticationError, DeadlineError, InvalidInputError
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.testing import ServerProcess
from tests import oip, oip_grpc
from tests.deadlines import wait_until
from tests.leaks import no_leaks
from tests.server_process import client_of, server_of, serving, target

X = np.array([1, 2, 3, 4], np.float32)
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """Starts one server for most tests. It must leave nothing."""
    targets = [
        target("arithmetic", "quadruple"),
        target("arithmetic", "double_until_large"),
        target("streaming", "count_up"),
        target("slow", "gated"),
        target("large", "chain"),
    ]
    with no_leaks(), serving(targets, in_process=True) as found:
        yield found
        found.stop(is_from_terminal=True)
        assert found.process.returncode == 0, found.output
        assert found.leftovers() == []


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[dyorc.Client]:
    with dyorc.Client(server.url) as found:
        yield found


def test_ray_is_not_started(server: ServerProcess) -> None:
    assert server.pids() == [server.process.pid]
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "/ray/" not in maps
    assert "Ray" not in server.output


def test_workflows_answer_while_their_programs_move_to_the_loop(server: ServerProcess, client: dyorc.Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        for y in threads.map(lambda number: client.infer("double_until_large", x=X + number % 20), range(200)):
            assert y.max() >= 100
    with client_of(server) as http:
        status = http.get("/status").json()
        assert status["link"]["num_batches_inline"] > 0
        statistics = http.get("/v2/models/double/stats").json()["model_stats"][0]
    assert statistics["inference_count"] >= 200
    assert statistics["inference_stats"]["compute_infer"]["ns"] > 0


def test_a_stream_comes_in_parts(client: dyorc.Client) -> None:
    parts = list(client.stream("count_up", x=np.array([1, 1], np.float32), num_parts=5))
    assert len(parts) == 5


def test_a_job_is_kept_and_run(client: dyorc.Client) -> None:
    job = client.submit("quadruple", x=X)
    np.testing.assert_array_equal(job.result(), 4 * X)


def test_a_long_program_does_not_hold_up_others_and_misses_its_deadline(client: dyorc.Client, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(client.infer, "gated", x=X, folder=str(tmp_path), timeout_s=2)
        wait_until(lambda: list(tmp_path.glob("started-*")), "it runs")
        np.testing.assert_array_equal(client.infer("quadruple", x=X), 4 * X)
        with pytest.raises(DeadlineError):
            slow.result()
        (tmp_path / "open").touch()
    np.testing.assert_array_equal(client.infer("gated", x=X, folder=str(tmp_path)), X + 1)


def test_errors_say_what_is_wrong(client: dyorc.Client) -> None:
    with pytest.raises(InvalidInputError):
        client.infer("quadruple", x=X[:3])


def test_large_tensors_pass_through(client: dyorc.Client) -> None:
    np.testing.assert_array_equal(client.infer("chain", seed=np.ones(1, np.float32)), [3, 2_000_002])


def test_it_serves_over_grpc(server: ServerProcess) -> None:
    async def ask() -> Any:
        async with oip_grpc.connected(server.grpc_address) as stub:
            return await stub.ModelInfer(oip_grpc.request("quadruple", {"x": X}))

    answer = asyncio.run(ask())
    assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == (4 * X).tolist()


def test_the_digits_example_serves_tenants(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="needs the extra `demo`")
    if not (DIGITS / "weights" / "large.safetensors").is_file():
        pytest.skip("the example's weights were not made")
    key, record = new_key()
    tenants = tmp_path / "tenants.json"
    write_tenants(tenants, [TenantRecord(name="someone", keys=[record], max_requests=1)])
    targets = [f"{DIGITS / 'workflow.py'}:classify"]
    with no_leaks(), serving(targets, in_process=True, DYORC_GATEWAY__KEYS_FILE=str(tenants)) as server:
        print(f"\nready after {server.wait_until_ready():.1f} s")
        with dyorc.Client(server.url, api_key=key) as client:
            found = client.infer("classify", image=np.zeros((1, 8, 8), np.float32))
            assert found["probabilities"].sum() == pytest.approx(1, abs=1e-3)
        with dyorc.Client(server.url, retries=Retries(max_attempts=1)) as nobody, pytest.raises(AuthenticationError):
            nobody.infer("classify", image=np.zeros((1, 8, 8), np.float32))
        server.stop()
        assert server.leftovers() == []


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
