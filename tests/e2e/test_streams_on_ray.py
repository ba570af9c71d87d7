"""Programs that yield and read each other's streams, on a real Ray: forked replicas, clients over HTTP, a kill in the middle."""

import os
import signal
from typing import Any

import numpy as np
import pytest

import dyorc
from tests.leaks import no_leaks
from tests.server_process import replica_pids, serving, target

pytestmark = pytest.mark.ray


def number(part: Any) -> int:
    return int(np.asarray(part))


def test_a_stream_goes_through_three_programs_and_outlives_a_killed_replica() -> None:
    with no_leaks(), serving([target("relayed", "relay")]) as server, dyorc.Client(server.url) as client:
        expected = [int(total) for total in np.cumsum([2 * (1 + at) for at in range(200)])]
        inputs: dict[str, Any] = {"first": np.array(1), "num_parts": 200, "pause_s": 0.005}
        assert [number(part) for part in client.stream("relay", **inputs)] == expected
        found: list[int] = []
        for part in client.stream("relay", **inputs):
            found.append(number(part))
            if len(found) == 20:
                os.kill(replica_pids(server, "doubled")[0], signal.SIGKILL)
        assert found == expected
        server.stop()
        assert server.leftovers() == []
