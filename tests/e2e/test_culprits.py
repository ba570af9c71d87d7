"""A client that repeats an input which crashes its program: how many cells that costs, and what others notice."""

import threading
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from dyorc.testing import ServerProcess
from tests import oip
from tests.deadlines import TIMEOUT_S, wait_until
from tests.leaks import no_leaks
from tests.server_process import serving, target

BAD, GOOD = np.full(4, -1, np.float32), np.full(4, 7, np.float32)
NUM_CELLS = 2
_MAX_DEATHS = 8


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """Cells that have crashed of nothing yet."""
    targets = [
        target("faulty", "crashing"),
        target("faulty", "crashing_last"),
        target("arithmetic", "quadruple"),
        "--cells",
        str(NUM_CELLS),
    ]
    with no_leaks(), serving(targets, in_process=True, DYORC_CELLS__RESTART_DELAY_S="0.1") as found:
        yield found


def ask(server: ServerProcess, x: oip.Array, model: str = "crashing") -> httpx.Response:
    """Sends a request on a separate connection, so that any cell may get it."""
    body = oip.json_body({"x": x})
    url = f"{server.url}/v2/models/{model}/infer"
    with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client:
        return client.post(url, content=body.content)


def repeat_until_refused(server: ServerProcess, x: oip.Array, model: str = "crashing") -> tuple[int, httpx.Response]:
    """Returns how many cells an input has cost, and how it was refused."""
    num_deaths = 0
    while True:
        num_back = server.output.count("is ready again")
        try:
            return num_deaths, ask(server, x, model)
        except httpx.TransportError:
            num_deaths += 1
            assert num_deaths < _MAX_DEATHS, "it is refused at some time"
            wait_until(lambda before=num_back: server.output.count("is ready again") > before, "it starts again")


class Neighbour(threading.Thread):
    """Sends one harmless input without end, so that it runs beside every crash."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self._server = server
        self.is_over = False
        self.num_answers = 0
        self.failures: list[str] = []

    def run(self) -> None:
        while not self.is_over:
            try:
                response = ask(self._server, GOOD)
            except httpx.TransportError:
                continue  # its cell has crashed
            if response.status_code == 200:
                self.num_answers += 1
            else:
                self.failures.append(response.text)


def test_an_input_that_ends_cells_is_refused_by_all_of_them(server: ServerProcess) -> None:
    neighbours = [Neighbour(server) for _ in range(4)]
    for neighbour in neighbours:
        neighbour.start()
    try:
        num_deaths, refused = repeat_until_refused(server, BAD)
        again = [ask(server, BAD) for _ in range(8)]  # whichever cell they reach
        other_deaths, _ = repeat_until_refused(server, 2 * BAD)
    finally:
        for neighbour in neighbours:
            neighbour.is_over = True
        for neighbour in neighbours:
            neighbour.join()
    assert num_deaths == 3  # the first is not noted, the second makes it suspect
    for response in (refused, *again):
        assert response.status_code == 500
        assert "its cell was ended by SIGSEGV" in response.text, response.text
        assert response.json()["code"] == "suspect_input"
    assert other_deaths == 2  # now cells note what they run
    assert [neighbour.failures for neighbour in neighbours] == [[]] * len(neighbours)
    assert ask(server, GOOD).status_code == 200


def test_a_call_that_crashes_after_others_of_its_request_ran_well_is_refused_too(server: ServerProcess) -> None:
    bad = np.full(4, 101, np.float32)
    num_deaths, refused = repeat_until_refused(server, bad, "crashing_last")
    assert num_deaths == 3, "as if it were the only call"
    for response in (refused, *(ask(server, bad, "crashing_last") for _ in range(4))):
        assert (response.status_code, response.json()["code"]) == (500, "suspect_input"), response.text
    assert ask(server, GOOD, "crashing_last").status_code == 200
