"""`dyorc serve --in-process --cells N`: several cells on one port, under a supervisor. Real processes, really killed."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from dyorc.testing import ServerProcess
from tests import oip, oip_grpc
from tests.deadlines import TIMEOUT_S, wait_until
from tests.leaks import no_leaks
from tests.server_process import despite_kills, server_of, serving, target
from tests.shared_folders import shared_object

X = np.array([1, 2, 3, 4], np.float32)
TARGETS = [target("arithmetic", "quadruple"), target("faulty", "crashing"), target("faulty", "standing")]
HANG_LIMIT_S = 6.0
"""Long enough that a busy machine does not look like a cell that stands still."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two cells. They leave nothing, although some of them crash."""
    settings = {
        "DYORC_CELLS__HANG_LIMIT_S": str(HANG_LIMIT_S),
        "DYORC_CELLS__RESTART_DELAY_S": "0.1",
        "DYORC_STORE": f"sqlite:///{tmp_path_factory.mktemp('store') / 'jobs.db'}",
    }
    with no_leaks(), serving([*TARGETS, "--cells", "2", "--allow-client-shm"], in_process=True, **settings) as found:
        yield found
        found.stop(is_from_terminal=True)
        assert found.process.returncode == 0, found.output
        assert found.leftovers() == []


class Door:
    """A connection to one cell: the one that answers on it.

    Attributes:
        pid: The cell's process.
    """

    def __init__(self, server: ServerProcess) -> None:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        self.client = httpx.Client(base_url=server.url, timeout=TIMEOUT_S, limits=limits, trust_env=False)
        self.client.get("/v2/health/live").raise_for_status()
        port = self._port()
        self.pid = next(pid for pid in cell_pids(server) if port in _peer_ports(pid))

    def _port(self) -> int:
        pool: Any = self.client._transport  # httpx does not say it
        stream = pool._pool.connections[0]._connection._network_stream
        return int(stream.get_extra_info("client_addr")[1])

    def infer(self, model: str, x: Any, **parameters: Any) -> httpx.Response:
        body = oip.json_body({"x": x}, parameters=parameters)
        return self.client.post(f"/v2/models/{model}/infer", content=body.content)


def _peer_ports(pid: int) -> set[int]:
    return {connection.raddr.port for connection in psutil.Process(pid).net_connections("tcp") if connection.raddr}


def cell_pids(server: ServerProcess) -> list[int]:
    """The processes of the cells, those included that are starting."""
    return [child.pid for child in psutil.Process(server.process.pid).children()]


@contextlib.contextmanager
def doors(server: ServerProcess) -> Iterator[dict[int, Door]]:
    """One connection to each of the two cells, by their processes."""
    found: dict[int, Door] = {}
    with contextlib.ExitStack() as stack:
        while len(found) < 2:
            door = Door(server)
            stack.callback(door.client.close)
            found.setdefault(door.pid, door)
        yield found


def status(server: ServerProcess) -> dict[str, Any]:
    return httpx.get(f"{server.url}/status", trust_env=False, timeout=TIMEOUT_S).json()


def wait_for_both(server: ServerProcess) -> None:
    """Waits until two cells serve."""

    def are_there() -> bool:
        return [cell["pid"] is not None for cell in status(server).get("cells", [])] == [True, True]

    wait_until(lambda: despite_kills(are_there), "both cells answer")


@pytest.fixture
def both(server: ServerProcess) -> Iterator[dict[int, Door]]:
    wait_for_both(server)
    with doors(server) as found:
        yield found


def test_the_supervisor_is_small_and_the_cells_share_the_port(server: ServerProcess, both: dict[int, Door]) -> None:
    assert sorted(both) == sorted(cell_pids(server))
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "torch" not in maps
    assert "numpy" not in maps
    for door in both.values():
        np.testing.assert_array_equal(oip.read(door.infer("quadruple", x=X)).outputs["output"], 4 * X)


def test_statistics_and_status_are_those_of_all_cells(server: ServerProcess, both: dict[int, Door]) -> None:
    def count(door: Door) -> int:
        return door.client.get("/v2/models/quadruple/stats").json()["model_stats"][0]["inference_count"]

    first, second = both.values()
    before = count(first)
    for door, number in ((first, 3), (second, 5)):
        for _ in range(number):
            door.infer("quadruple", x=X).raise_for_status()
    assert count(first) == count(second) == before + 8

    async def ask() -> Any:
        async with oip_grpc.connected(server.grpc_address) as stub:
            return await stub.ModelStatistics(oip_grpc.pb.ModelStatisticsRequest(name="quadruple"))

    assert asyncio.run(ask()).model_stats[0].inference_count == before + 8
    for door in both.values():
        report = door.client.get("/status").json()
        assert report["programs"]["double"]["num_replicas"] == 2
        assert sorted(cell["pid"] for cell in report["cells"]) == sorted(both)
        assert report["jobs"]["max_running"] == 40


def test_statistics_keep_what_a_cell_has_counted_that_dies(server: ServerProcess, both: dict[int, Door]) -> None:
    def count(door: Door) -> int:
        return door.client.get("/v2/models/quadruple/stats").json()["model_stats"][0]["inference_count"]

    (victim, door), (_, other) = both.items()
    for _ in range(7):
        door.infer("quadruple", x=X).raise_for_status()
    before = count(other)  # what somebody has seen is not lost
    said = len(server.lines)
    os.kill(victim, signal.SIGKILL)
    while "is ready again" not in "".join(server.lines[said:]):
        assert count(other) == before
    wait_for_both(server)
    with doors(server) as found:
        assert [count(each) for each in found.values()] == [before, before]


def test_another_server_on_the_port_is_refused(server: ServerProcess, both: dict[int, Door]) -> None:
    port = server.url.rpartition(":")[2]
    for more in ([], ["--cells", "2"]):
        command = [sys.executable, "-m", "dyorc.cli.main", "serve", TARGETS[0], "--in-process", "--port", port, *more]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert ended.returncode == 1, ended.stdout
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in ended.stderr


def test_a_program_that_segfaults_costs_its_cell_only(server: ServerProcess, both: dict[int, Door]) -> None:
    (victim, door), (_, other) = both.items()
    said = len(server.lines)
    killed_s = time.monotonic()
    with pytest.raises(httpx.TransportError):
        door.infer("crashing", x=-X)
    asked = lost = 0
    while "is ready again" not in "".join(server.lines[said:]):
        asked += 1
        other.infer("quadruple", x=X).raise_for_status()  # an old connection to the other cell
        try:  # a new one
            httpx.get(f"{server.url}/v2/health/ready", trust_env=False, timeout=TIMEOUT_S).raise_for_status()
        except httpx.TransportError:
            lost += 1
    print(f"\nback after {time.monotonic() - killed_s:.1f} s; {asked} new connections meanwhile, {lost} failed")
    assert lost <= 1  # one may have been accepted by the kernel for the cell that was about to end
    text = "\n".join(server.lines[said:])
    assert f"(process {victim}) was ended by SIGSEGV; it starts again" in text
    assert "in crashing_program" in text  # where it was
    wait_for_both(server)
    assert victim not in cell_pids(server)


def test_a_program_that_holds_up_the_event_loop_costs_its_cell_only(server: ServerProcess, both: dict[int, Door]) -> None:
    (victim, door), (_, other) = both.items()
    said = len(server.lines)
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(door.infer, "standing", x=-X)
        while not hanging.done():
            other.infer("quadruple", x=X).raise_for_status()
        with pytest.raises(httpx.TransportError):
            hanging.result()
    server.wait_for(rf"\(process {victim}\) was ended by SIGABRT")
    text = "\n".join(server.lines[said:])
    assert f"has not responded for {HANG_LIMIT_S:g} s (the setting CELLS__HANG_LIMIT_S)" in text
    assert "in standing_program" in text
    wait_for_both(server)


def test_a_stopped_process_is_replaced(server: ServerProcess, both: dict[int, Door]) -> None:
    (victim, _), (_, other) = both.items()
    os.kill(victim, signal.SIGSTOP)
    report = other.client.get("/status").json()  # waits for it for a while only
    assert [cell["pid"] for cell in report["cells"]].count(None) == 1
    server.wait_for(rf"\(process {victim}\) was ended by SIGKILL")
    wait_for_both(server)


def test_clients_memory_is_known_to_all_cells(server: ServerProcess, both: dict[int, Door]) -> None:
    body = {
        "inputs": [{
            "name": "x", "datatype": "FP32", "shape": [4],
            "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 16},
        }],
    }  # fmt: skip

    def answers() -> list[int]:
        with doors(server) as found:
            return [door.client.post("/v2/models/quadruple/infer", json=body).status_code for door in found.values()]

    with shared_object(X.tobytes() + bytes(X.nbytes)) as path:
        first, second = both.values()
        registration = {"key": f"/{path.name}", "byte_size": 32}
        first.client.post("/v2/systemsharedmemory/region/r/register", json=registration).raise_for_status()
        assert answers() == [200, 200]
        again = second.client.post("/v2/systemsharedmemory/region/r/register", json=registration)
        assert again.status_code == 400, again.text
        os.kill(first.pid, signal.SIGKILL)  # the one that starts in its place learns of it
        server.wait_for(rf"\(process {first.pid}\) was ended by SIGKILL")
        wait_for_both(server)
        assert answers() == [200, 200]
        second.client.post("/v2/systemsharedmemory/region/r/unregister").raise_for_status()
        assert answers() == [404, 404]


def test_a_job_is_everybodys(server: ServerProcess, both: dict[int, Door]) -> None:
    first, second = both.values()
    job = json.loads(oip.json_body({"x": X}).content) | {"model_name": "quadruple"}
    key = {"Idempotency-Key": "once"}
    made = first.client.post("/v1/jobs", json=job, headers=key).json()
    assert second.client.post("/v1/jobs", json=job, headers=key).json()["id"] == made["id"]
    done = second.client.get(f"/v1/jobs/{made['id']}", params={"wait_s": 30}).json()
    assert done["state"] == "succeeded", done


def test_requests_in_flight_are_answered_before_it_stops() -> None:
    with no_leaks(), serving([target("slow", "resting"), "--cells", "2"], in_process=True) as server:
        with doors(server) as found, ThreadPoolExecutor(2) as threads:
            answers = [threads.submit(door.infer, "resting", x=X, rest_s=1.5) for door in found.values()]
            wait_until(lambda: status(server)["num_requests"] == 2, "both run")
            server.stop(signal.SIGTERM)
            assert [answer.result().status_code for answer in answers] == [200, 200]
        assert server.process.returncode == 0, server.output
        assert server.leftovers() == []


def test_nothing_is_left_of_a_supervisor_that_is_killed() -> None:
    with serving([target("slow", "resting"), "--cells", "2"], in_process=True) as server:
        first, _ = cell_pids(server)
        os.kill(first, signal.SIGSTOP)  # it will not notice
        server.process.kill()
        server.wait()
        wait_until(lambda: server.pids() == [], "the cells have ended")
        assert server.leftovers() == []


def test_a_definition_error_ends_it() -> None:
    with server_of([target("arithmetic", "not_there"), "--cells", "2"], in_process=True) as server:
        server.wait()
        assert server.process.returncode == 1
        assert re.search(r"dyorc: .*arithmetic\.py has no workflow or program 'not_there'", server.output)
        assert "Traceback" not in server.output
        assert server.leftovers() == []


@pytest.mark.parametrize("options", [["--cells", "0", "--in-process"], ["--cells", "many", "--in-process"], ["--cells", "2"]])
def test_wrong_numbers_of_cells_are_refused(options: list[str]) -> None:
    command = [sys.executable, "-m", "dyorc.cli.main", "serve", TARGETS[0], "--port", "0", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 1
    assert "--cells" in ended.stderr
