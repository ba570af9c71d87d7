"""`dyorc serve` on a Ray cluster of two nodes that the user runs: real Ray on two network namespaces."""

import os
import signal
import time
from collections.abc import Iterator

import httpx
import numpy as np
import psutil
import pytest

from dyorc.core.arrays import Array
from tests import oip
from tests.deadlines import TIMEOUT_S, wait_until
from tests.ray_nodes import RAY_PORT, ray_environment, ray_nodes
from tests.server_process import client_of, replica_pids, server_of, target
from tests.two_hosts import Host, TwoHosts, why_not
from tests.workflows import far

pytestmark = pytest.mark.ray


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoHosts]:
    """Starts two hosts with a Ray node on each: `host_a` on the first, where the test runs, and `host_b` on the second."""
    if reason := why_not():
        pytest.skip(reason)
    with ray_environment() as (folder, environment), ray_nodes(folder, monkeypatch, environment) as hosts:
        yield hosts


def _ask(client: httpx.Client, seed: int) -> oip.Answer:
    """Sends one request, whose tensor has to be right."""
    body = oip.json_body({"seed": np.array(seed, np.int64)})
    answer = oip.read(client.post("/v2/models/carried_far/infer", content=body.content))
    assert answer.outputs["checksum"] == far.checksum_of(far.words_of(seed))
    return answer


def _replicas(host: Host) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for pid in host.pids():
        try:
            process = psutil.Process(pid)
            command = " ".join(process.cmdline())
            if "ReplicaDeployment" in command or "dyorc.replica.fork_server" in command:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
def test_programs_on_two_nodes_hand_tensors_to_each_other_and_one_that_dies_is_replaced(cluster: TwoHosts) -> None:
    address = cluster.first.address
    settings = {"DYORC_DEPLOYMENT__RAY_ADDRESS": f"{address}:{RAY_PORT}", "DYORC_LINK__HOST": address}
    with server_of([target("far", "carried_far")], **settings) as server:
        ready_s = server.wait_until_ready()
        (maker,), (reader,) = replica_pids(server, "make_there"), replica_pids(server, "digest_here")
        assert maker in cluster.second.pids()
        assert reader in cluster.first.pids()
        with client_of(server) as client:
            num_before = cluster.second.num_bytes_sent()
            started_s = time.monotonic()
            for seed in range(8):
                answer = _ask(client, seed)
                assert (answer.outputs["maker"], answer.outputs["reader"]) == (maker, reader)
            each_s = (time.monotonic() - started_s) / 8
            num_sent = cluster.second.num_bytes_sent() - num_before
            os.kill(maker, signal.SIGKILL)
            killed_s = time.monotonic()
            answer = _ask(client, 8)
            replaced_s = time.monotonic() - killed_s
        (new,) = replica_pids(server, "make_there")
        assert answer.outputs["maker"] == new
        assert new in cluster.second.pids()
        stopped_s = server.stop()
        print(
            f"\nready after {ready_s:.1f} s, 8 MiB from node to node and back {each_s:.3f} s, "
            f"answered {replaced_s:.1f} s after its replica died, stopped after {stopped_s:.1f} s"
        )
        # An idle replica may fetch a tensor itself just before it is told to do so ahead, and then does both.
        assert 8 * 8 * far.NUM_WORDS < num_sent < 2 * 8 * 8 * far.NUM_WORDS
        assert server.process.returncode == 0, server.output
        assert server.leftovers() == []
        assert [process.cmdline() for host in cluster.hosts for process in _replicas(host)] == []
        assert len(cluster.second.pids()) > 0, "the cluster is somebody else's, and stays"


@pytest.mark.slow
def test_programs_take_turns_on_a_device_and_a_label_says_where_one_runs(cluster: TwoHosts) -> None:
    """Ray counts a device on the first host; it does not exist."""
    address = cluster.first.address
    settings = {
        "DYORC_DEPLOYMENT__RAY_ADDRESS": f"{address}:{RAY_PORT}", "DYORC_LINK__HOST": address, "DYORC_SCALING__INTERVAL_S": "0.1"
    }  # fmt: skip
    names = ["on_wide_a", "on_wide_b", "on_narrow_a", "on_a_label"]
    with server_of([target("sharing", name) for name in names], **settings) as server:
        server.wait_until_ready()
        with client_of(server) as client:
            (labelled,) = replica_pids(server, "labelled")
            assert labelled in cluster.second.pids(), "the label is the second host's"
            pids: dict[str, set[int]] = {name: set() for name in names[:3]}
            for _ in range(3):
                for name in pids:
                    outputs = _ask_for_seat(client, name)
                    assert outputs["device"] == 0, "a forked process sees the device that Ray has given its replica"
                    pids[name].add(int(outputs["pid"]))
                    warm = _warm(client)
                    assert not {"wide_a", "wide_b"} <= warm, "0.6 of a device and 0.6"
            assert all(len(found) == 1 for found in pids.values()), "they were parked, not ended"
            client.post("/scaling/wide_a", json={"num_warm": 1})
            client.post("/scaling/narrow_a", json={"num_warm": 1})
            wait_until(lambda: {"wide_a", "narrow_a"} <= _warm(client), "0.6 and 0.4 are warm together")
        server.stop()
        assert server.process.returncode == 0, server.output


def _ask_for_seat(client: httpx.Client, workflow: str) -> dict[str, Array]:
    body = oip.json_body({"x": np.array(1, np.float32)})
    return oip.read(client.post(f"/v2/models/{workflow}/infer", content=body.content, timeout=TIMEOUT_S)).outputs


def _warm(client: httpx.Client) -> set[str]:
    programs = client.get("/scaling").json()["programs"]
    return {name for name, one in programs.items() if one["num_warm"]}
