"""A tenant's limits on a server with several cells: it may have no more than with one."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.testing import ServerProcess
from tests import oip
from tests.deadlines import wait_until
from tests.leaks import no_leaks
from tests.server_process import serving, target

_KEY, _RECORD = new_key()
X = np.ones(4, np.float32)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Three cells, whose only tenant may have one request in flight."""
    keys = tmp_path / "keys.toml"
    write_tenants(keys, [TenantRecord(name="one", keys=[_RECORD], max_requests=1)])
    targets = [target("slow", "resting"), "--cells", "3"]
    with no_leaks(), serving(targets, in_process=True, DYORC_GATEWAY__KEYS_FILE=str(keys)) as found:
        yield found


def ask(server: ServerProcess, rest_s: float) -> int:
    """Sends a request on a separate connection. Returns the status of the answer, 0 if the connection was lost."""
    body = oip.json_body({"x": X}, parameters={"rest_s": rest_s})
    url = f"{server.url}/v2/models/resting/infer"
    with httpx.Client(timeout=300, trust_env=False, headers={"X-API-Key": _KEY}) as client:
        try:
            return client.post(url, content=body.content).status_code
        except httpx.TransportError:
            return 0


def test_a_limit_holds_for_all_cells_and_a_cell_that_dies_holds_nothing(server: ServerProcess) -> None:
    found: list[int] = []

    def hold() -> None:
        while (status := ask(server, 200)) == 429:  # one of the questions below was in flight at that moment
            pass
        found.append(status)

    holding = threading.Thread(target=hold)
    holding.start()
    wait_until(lambda: ask(server, 0) == 429, "one request is in flight")
    assert [ask(server, 0) for _ in range(12)] == [429] * 12  # they cannot all have reached the same cell
    for cell in psutil.Process(server.process.pid).children():
        os.kill(cell.pid, signal.SIGKILL)
    holding.join()
    assert found == [0]
    server.wait_for("is ready again")
    wait_until(lambda: ask(server, 0) == 200, "nothing is in flight")
