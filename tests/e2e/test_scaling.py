"""Programs scale: to nothing and back, by hand and by themselves, with replicas on Ray and without Ray."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyorc
from dyorc.errors import InvalidInputError
from dyorc.testing import ServerProcess, serving
from tests.deadlines import wait_until

pytestmark = pytest.mark.ray

APP = Path(__file__).parents[1] / "workflows" / "scaled.py"
SMALL, LARGE = np.ones(4, np.float32), np.full(4, 20, np.float32)


@pytest.fixture(scope="module", params=["ray", "cell"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Serves programs that are cold at first."""
    settings = {"DYORC_SCALING__INTERVAL_S": "0.1"}
    with serving(f"{APP}:cascade", f"{APP}:where", in_process=request.param == "cell", environment=settings) as found:
        yield found


@pytest.fixture
def client(server: ServerProcess) -> Iterator[dyorc.Client]:
    """Yields a client."""
    with dyorc.Client(server.url) as found:
        yield found


def state(client: dyorc.Client, program: str) -> dict[str, Any]:
    """Returns how many replicas a program has."""
    return client.scaling()["programs"][program]


def test_a_server_is_ready_although_a_program_is_cold(client: dyorc.Client) -> None:
    assert client.is_ready()
    np.testing.assert_array_equal(client.infer("cascade", x=SMALL), SMALL)


def test_the_first_request_for_a_cold_program_is_held_and_the_program_goes_when_nobody_needs_it(client: dyorc.Client) -> None:
    for _ in range(2):
        wait_until(lambda: state(client, "rare")["num_warm"] == 0, "nobody needs it")
        np.testing.assert_array_equal(client.infer("cascade", x=LARGE), LARGE * 2)
    decisions = [one for one in client.scaling()["decisions"] if one["program"] == "rare"]
    assert all(one["reason"] for one in decisions)
    assert {0, 1} <= {one["num_warm"] for one in decisions}


def test_numbers_are_set_by_hand(client: dyorc.Client, server: ServerProcess) -> None:
    command = [sys.executable, "-m", "dyorc.cli.main", "scale"]
    shown = subprocess.run([*command, "pid", "--warm", "1", "--url", server.url], capture_output=True, text=True, check=True)
    assert "ordered by hand" in shown.stdout
    wait_until(lambda: state(client, "pid")["num_warm"] == 1, "a warm replica")
    client.infer("where", x=SMALL)
    client.scale("pid", num_warm=0)
    wait_until(lambda: state(client, "pid")["num_warm"] == 0, "no warm replica")
    client.scale("pid")
    with pytest.raises(InvalidInputError, match=r"expected 0 to|expected at most 1"):
        client.scale("pid", num_warm=3)
    listed = subprocess.run([*command, "--url", server.url], capture_output=True, text=True, check=True)
    assert "rare" in listed.stdout


def test_two_replicas_run_in_two_processes_and_a_parked_one_keeps_its_own() -> None:
    with serving(f"{APP}:where") as server, dyorc.Client(server.url) as client:
        client.scale("pid", num_warm=2)
        wait_until(lambda: state(client, "pid")["num_warm"] == 2, "two warm replicas")
        pids = {int(client.infer("where", x=SMALL)) for _ in range(50)}
        assert len(pids) == 2
        assert os.getpid() not in pids
        client.scale("pid", num_warm=0, num_parked=2)
        wait_until(lambda: state(client, "pid")["num_parked"] == 2, "two parked replicas")
        client.scale("pid", num_warm=2)
        wait_until(lambda: state(client, "pid")["num_warm"] == 2, "two warm replicas again")
        assert {int(client.infer("where", x=SMALL)) for _ in range(50)} == pids
