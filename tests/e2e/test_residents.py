"""Chains of calls with residents, in a real server: in its own process, and on Ray."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from dyorc.testing import ServerProcess
from tests.deadlines import wait_until
from tests.leaks import no_leaks
from tests.server_process import client_of, despite_kills, replica_pids, serving, target

NUM_CLIENTS, NUM_TURNS = 32, 200
TARGETS = [target("counting", "count_up"), target("counting", "count_both_ways")]


@pytest.fixture(scope="module", params=["in_process", pytest.param("on_ray", marks=pytest.mark.ray)])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with no_leaks(), serving(TARGETS, in_process=request.param == "in_process") as running:
        yield running


def count(client: httpx.Client, workflow: str, number: int, num_turns: int) -> list[int]:
    inputs = [{"name": "number", "datatype": "INT64", "shape": [], "data": [number]}]
    body = {"inputs": inputs, "parameters": {"num_turns": num_turns}}
    answer = despite_kills(lambda: client.post(f"/v2/models/{workflow}/infer", json=body))
    assert answer.status_code == 200, answer.text
    return [output["data"][0] for output in answer.json()["outputs"]]


def count_in_parallel(pool: ThreadPoolExecutor, client: httpx.Client, num_turns: int) -> list[Future[list[int]]]:
    return [pool.submit(count, client, "count_up", number, num_turns) for number in range(NUM_CLIENTS)]


def test_turns_of_many_clients_share_batches(server: ServerProcess) -> None:
    with client_of(server) as client, ThreadPoolExecutor(NUM_CLIENTS) as pool:
        totals = [future.result() for future in count_in_parallel(pool, client, NUM_TURNS)]
        assert totals == [[(NUM_TURNS + 1) * number] for number in range(NUM_CLIENTS)]
        sizes = _batch_sizes(client)
        assert sizes["sum"] / sizes["count"] > 2, "continuous batches"
        wait_until(lambda: num_residents(client) == 0, "residents are released")


def test_a_counter_goes_on_in_two_ways(server: ServerProcess) -> None:
    with client_of(server) as client:
        assert count(client, "count_both_ways", 1, 3) == [5, 2 + 3 + 4 + 5]


@pytest.mark.parametrize("server", [pytest.param("on_ray", marks=pytest.mark.ray)], indirect=True)
def test_the_chains_of_a_killed_process_are_computed_again(server: ServerProcess) -> None:
    with client_of(server) as client, ThreadPoolExecutor(NUM_CLIENTS) as pool:
        for _ in range(2):
            futures = count_in_parallel(pool, client, NUM_TURNS)
            wait_until(lambda: client.get("/status").json()["num_requests"] > 0, "chains are under way")
            wait_until(lambda: len(replica_pids(server, "count")) == 2, "both processes are there")
            assert sorted(replica_pids(server, "begin")) == sorted(replica_pids(server, "count")), "programs share processes"
            os.kill(replica_pids(server, "count")[0], signal.SIGKILL)
            assert [future.result() for future in futures] == [[(NUM_TURNS + 1) * number] for number in range(NUM_CLIENTS)]
        wait_until(lambda: num_residents(client) == 0, "residents are released")


def num_residents(client: httpx.Client) -> int:
    """Returns how many residents the engine knows, or the engines of all cells together."""
    return sum(program["num_residents"] for program in client.get("/status").json()["programs"].values())


def _batch_sizes(client: httpx.Client) -> dict[str, float]:
    """Returns how many calls of `count` there were in all, and in how many batches."""
    found: dict[str, float] = {}
    for line in client.get("/metrics").text.splitlines():
        for key in ("sum", "count"):
            if line.startswith(f"dyorc_batch_size_{key}") and 'program="count"' in line:
                found[key] = found.get(key, 0.0) + float(line.rpartition(" ")[2])
    return found
