"""`dyorc gateway` and `dyorc orchestrator`: what works in one process works in several, and any of them may end."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx
import numpy as np
import pytest

import dyorc
from dyorc.testing import ServerProcess
from tests.deadlines import TIMEOUT_S, wait_until
from tests.parted import Cluster, cluster
from tests.server_process import client_of, target

pytestmark = pytest.mark.together

X = np.array([1, 2, 3, 4], np.float32)
TARGETS = [target("arithmetic", "quadruple"), target("arithmetic", "sums"), target("streaming", "count_up")]
SCALED = target("scaled", "where")


class Parted(NamedTuple):
    """Two gateway processes on one port, before one orchestrator."""

    cluster: Cluster
    orchestrator: ServerProcess
    gateway: ServerProcess


@pytest.fixture(scope="module")
def parted() -> Iterator[Parted]:
    with (
        cluster() as found,
        found.orchestrator([*TARGETS, SCALED], DYORC_CLUSTER__OPERATIONS_PORT="0") as orchestrator,
        found.gateway("--processes", "2") as gateway,
    ):
        orchestrator.wait_until_ready()
        gateway.wait_until_ready()
        yield Parted(found, orchestrator, gateway)


def run(*arguments: str, url: str) -> str:
    """Runs the command line against a gateway and returns what it printed."""
    command = [sys.executable, "-m", "dyorc.cli.main", *arguments, "--url", url]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout


def operations_of(orchestrator: ServerProcess) -> httpx.Client:
    """Returns a client of an orchestrator's operations port."""
    return httpx.Client(base_url=orchestrator.wait_for(r"Operations on (\S+)")[1], timeout=TIMEOUT_S, trust_env=False)


def test_requests_are_answered_and_counted_once(parted: Parted) -> None:
    with dyorc.Client(parted.gateway.url) as client, ThreadPoolExecutor(8) as threads:
        before = client.statistics("quadruple")["model_stats"][0]["inference_count"]
        for y in threads.map(lambda number: client.infer("quadruple", x=X + number), range(100)):
            assert (y % 4 == 0).all()
        found = [client.statistics("quadruple")["model_stats"][0]["inference_count"] for _ in range(8)]
        assert set(found) == {before + 100}, "whichever gateway process is asked"
    with operations_of(parted.orchestrator) as client:
        assert client.get("/v2/health/ready").status_code == 200
        assert f'dyorc_requests_total{{outcome="ok",workflow="quadruple"}} {before + 100}.0' in client.get("/metrics").text
    with client_of(parted.gateway) as client:
        metrics = client.get("/metrics").text
        assert "dyorc_cells 2.0" in metrics
        assert "dyorc_requests_total{" not in metrics, "the orchestrator counts them"


def test_commands_show_what_orchestrators_do(parted: Parted) -> None:
    url = parted.gateway.url
    with dyorc.Client(url) as client:
        client.infer("quadruple", x=X)
    shown = json.loads(run("status", "--json", url=url))
    assert shown["is_ready"]
    assert shown["programs"]["double"]["state"] == "ready"
    assert len(shown["cells"]) == 2
    wait_until(lambda: "quadruple" in run("explain", url=url), "the request is remembered")
    assert "double" in run("scale", url=url)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run("scale", "pid", "--warm", "2", url=url)
    assert "program 'pid': 2 warm and 0 parked replicas, expected at most 1" in refused.value.stderr
    assert "ordered by hand" in run("scale", "pid", "--warm", "1", url=url)


def test_large_tensors_streams_and_jobs_go_through(parted: Parted) -> None:
    with dyorc.Client(parted.gateway.url) as client:
        assert client.infer("sums", x=np.ones(10**6, np.float32))["total"] == 10**6
        assert len(list(client.stream("count_up", x=np.zeros(2, np.float32), num_parts=3))) == 3
        job = client.submit("quadruple", x=X)
        np.testing.assert_array_equal(job.result(timeout_s=TIMEOUT_S), X * 4)


def test_without_a_leader_a_gateway_lives_and_says_what_is_missing() -> None:
    with cluster() as found, found.gateway("--groups", "nets") as gateway, client_of(gateway) as client:
        gateway.wait_for("Listening on")
        assert client.get("/v2/health/live").status_code == 200
        refused = client.get("/v2/health/ready")
        assert refused.status_code == 503
        assert "group 'nets' has no leader" in refused.json()["error"]
        asked = client.post("/v2/models/quadruple/infer", json={"inputs": []})
        assert asked.status_code == 503
        assert "['nets']" in asked.json()["error"]
        with pytest.raises(subprocess.CalledProcessError) as unready:
            run("status", url=gateway.url)
        assert unready.value.stdout.startswith("not ready: group 'nets' has no leader")
        gateway.stop(signal.SIGTERM)
        assert gateway.process.returncode == 0, gateway.output


def test_a_standby_takes_over_when_the_leader_stops_and_when_it_is_killed() -> None:
    def infer(request_id: str) -> None:
        np.testing.assert_array_equal(client.infer("quadruple", x=X, request_id=request_id), X * 4)

    with (
        cluster() as found,
        found.orchestrator(TARGETS[:1]) as first,
        found.gateway() as gateway,
        dyorc.Client(gateway.url, timeout_s=TIMEOUT_S) as client,
    ):
        gateway.wait_until_ready()
        with found.orchestrator(TARGETS[:1]) as second:
            second.wait_for("Standing by")
            infer("of-leader-1")
            first.stop(signal.SIGTERM)
            assert first.process.returncode == 0, first.output
            assert first.lines[-2:] == ["Stopping ...", "Stopped."]
            infer("of-leader-2")
            with found.orchestrator(TARGETS[:1]) as standby:
                standby.wait_for("Standing by")
                standby.stop(signal.SIGTERM)
                assert standby.lines[-2:] == ["Stopping ...", "Stopped."]
            with found.orchestrator(TARGETS[:1]) as third:
                third.wait_for("Standing by")
                second.process.kill()
                infer("of-leader-3")
                third.wait_for("^Ready")
                wait_until(lambda: len(client.requests()) == 3, "the records are there")
        for one in ("of-leader-1", "of-leader-2", "of-leader-3"):  # each leader has counted its requests from 1
            batches = client.request(one)["batches"].values()
            assert {shared["request_id"] for batch in batches for shared in batch["requests"]} == {one}


def test_what_cannot_work_is_said_at_the_start() -> None:
    with cluster() as found:
        with found.orchestrator(TARGETS[:1], DYORC_CLUSTER__HOST="10.0.0.1") as server:
            server.wait_for("cluster-keys FILE")
            server.wait()
            assert server.process.returncode == 1
        with found.gateway(DYORC_STORE="sqlite:///proc/nothing/store.db") as server:
            server.wait_for("/proc/nothing/store.db")
            server.wait()
            assert server.process.returncode == 1
