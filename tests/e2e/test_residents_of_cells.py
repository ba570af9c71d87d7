"""Residents in cells that are killed, and none that is left over."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from tests.deadlines import wait_until
from tests.e2e.test_residents import NUM_CLIENTS, NUM_TURNS, TARGETS, count, count_in_parallel, num_residents
from tests.leaks import no_leaks
from tests.server_process import client_of, serving


def test_a_cell_that_is_killed_takes_only_its_own_chains_with_it() -> None:
    """Requests of a killed cell are lost, and asked again by their clients."""
    cells = [*TARGETS, "--cells", "2"]
    delay = {"DYORC_CELLS__RESTART_DELAY_S": "0.1"}
    with (
        no_leaks(),
        serving(cells, in_process=True, **delay) as server,
        client_of(server) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as pool,
    ):
        futures = count_in_parallel(pool, client, NUM_TURNS)
        pids = [cell["pid"] for cell in client.get("/status").json()["cells"]]
        os.kill(pids[0], signal.SIGKILL)
        assert [future.result() for future in futures] == [[(NUM_TURNS + 1) * number] for number in range(NUM_CLIENTS)]
        wait_until(lambda: num_residents(client) == 0, "residents are released")


def test_nothing_of_a_thousand_chains_stays() -> None:
    with no_leaks(), serving(TARGETS, in_process=True) as server, client_of(server) as client:
        with ThreadPoolExecutor(NUM_CLIENTS) as pool:
            for future in [pool.submit(count, client, "count_up", 1, 3) for _ in range(1000)]:
                assert future.result() == [4]
        wait_until(lambda: num_residents(client) == 0, "residents are released")
        link = client.get("/status").json()["link"]
        assert (link["num_residents"], link["resident_bytes"]) == (0, 0), "the process holds none, either"
