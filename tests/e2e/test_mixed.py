"""One server with programs on Ray and in its own process."""

from pathlib import Path

import numpy as np
import pytest

import dyorc
from tests.leaks import no_leaks
from tests.server_process import client_of, replica_pids, serving, target

pytestmark = pytest.mark.ray


def test_tensors_go_from_ray_to_the_servers_process_and_back() -> None:
    targets = [target("mixed", "there_and_back"), target("mixed", "pid_here")]
    with no_leaks(), serving(targets, DYORC_TRANSPORT__INLINE_LIMIT_BYTES="16384") as server:
        with dyorc.Client(server.url) as client, client_of(server) as http:
            for seed in range(20):
                y = client.infer("there_and_back", seed=np.array([seed], np.float32))
                assert float(y) == seed + 500_000
                assert int(client.infer("pid_here", x=np.ones(1, np.float32))) == server.process.pid
            status = http.get("/status").json()
        assert {name: one["num_replicas"] for name, one in status["programs"].items()} == dict.fromkeys(
            ("make_ramp", "add_here", "last", "pid_here"), 1
        )
        assert status["link"]["num_batches_on_threads"] > 0
        assert status["link"]["num_bytes_sent"] > 0
        assert status["tensors"]["num_blocks"] == 0
        own = replica_pids(server, "make_ramp") + replica_pids(server, "last")
        assert server.process.pid not in own
        assert all(Path(f"/proc/{pid}").exists() for pid in own)
        server.stop()
        assert server.leftovers() == []
