"""A version that gets copies of requests, which no client notices."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyorc
from dyorc.errors import ConflictError, InvalidInputError
from dyorc.testing import serving
from tests.deadlines import TIMEOUT_S, wait_until
from tests.e2e.test_sticky_versions import deployed
from tests.e2e.updates import App, X
from tests.server_process import client_of

_BOOK = """
@dyorc.program(pure=False)
def book(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x

@dyorc.workflow"""


def copies_of(client: dyorc.Client, version: str) -> dict[str, Any]:
    """Returns what became of the copies for a version."""
    shadow: dict[str, Any] = client.deployments()["flow"]["versions"][version].get("traffic", {}).get("shadow", {})
    return shadow


def ask_until(client: dyorc.Client, is_enough: Callable[[], bool]) -> None:
    """Sends requests until the copies are as expected; each answer is that of the first version."""

    def look() -> bool:
        for _ in range(5):
            np.testing.assert_array_equal(client.infer("flow", x=X), [3, 5])
        return is_enough()

    wait_until(look, "enough copies have ended")


@pytest.mark.parametrize("mode", ["cell", "cells", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.ray])])
def test_answers_of_copies_are_compared_and_nobody_sees_them(tmp_path: Path, mode: str) -> None:
    app = App(tmp_path)
    options = ("--cells", "2") if mode == "cells" else ()
    with (
        serving(app.target, *options, in_process=mode != "ray") as server,
        dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client,
        client_of(server) as http,
    ):
        app.write(1.0001)
        assert "100%" in deployed(server, app.target, "--shadow", "100")
        ask_until(client, lambda: copies_of(client, "2").get("same", 0) >= 5)
        assert "different" not in copies_of(client, "2"), "floats may differ a little"

        app.write(2)
        changed = client.deploy(app.target, version="other", share=0, shadow=0.0)
        assert changed["shadows"] == {"2": 1.0}
        client.undeploy("flow", "2")
        client.deploy(app.target, version="other", shadow=1.0)
        ask_until(client, lambda: copies_of(client, "other").get("different", 0) >= 5)
        assert copies_of(client, "other")["last_difference"] == "output 'output' differs in 2 of 2 elements, by up to 1"
        printed = deployed(server)
        assert "different" in printed
        assert "flow other: 0 requests, 0 failed, 0 refused; as shadow" in printed

        metrics = http.get("/metrics").text
        assert 'dyorc_shadow_requests_total{outcome="different",workflow="flow@other"}' in metrics
        assert 'dyorc_requests_total{outcome="ok",workflow="flow@other (shadow)"}' in metrics
        assert 'dyorc_requests_total{outcome="ok",workflow="flow@other"}' not in metrics, "copies are no requests of clients"
        records = client.requests(limit=200)
        assert {record["transport"] for record in records} == {"http", "shadow"}
        assert {record["tenant"] for record in records if record["transport"] == "shadow"} == {"(shadow)"}


def test_a_version_that_fails_or_is_slow_costs_its_requests_nothing(tmp_path: Path) -> None:
    app = App(tmp_path)
    with serving(app.target, in_process=True) as server, dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client:
        app.write(1, lambda text: text.replace("return plus", "raise ValueError('broken')\n    return plus"))
        client.deploy(app.target, version="broken", shadow=1.0)
        ask_until(client, lambda: copies_of(client, "broken").get("failed", 0) >= 3)
        assert "broken" in copies_of(client, "broken")["last_difference"]
        client.undeploy("flow", "broken")

        app.write_held(7)  # its program waits until the test ends
        client.deploy(app.target, version="held", shadow=1.0)
        with ThreadPoolExecutor(8) as threads:
            for y in threads.map(partial(client.infer, "flow"), [{"x": X}] * 200):
                np.testing.assert_array_equal(y, [3, 5])
        assert copies_of(client, "held")["dropped"] > 100
        (tmp_path / "open").touch()


def test_what_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    app = App(tmp_path)
    with serving(app.target, in_process=True) as server, dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client:
        app.write(1, lambda text: text.replace("@dyorc.workflow", _BOOK).replace("plus(double(x))", "book(plus(double(x)))"))
        with pytest.raises(ConflictError, match="its program 'book' has effects, which would happen twice"):
            client.deploy(app.target, shadow=0.5)
        app.write(2)
        with pytest.raises(InvalidInputError, match=r"the shadow share is 0\.5 and the share 1"):
            client.deploy(app.target, share=1, shadow=0.5)
        with pytest.raises(InvalidInputError, match=r"the shadow share is 1\.5, expected a number from 0 to 1"):
            client.deploy(app.target, shadow=1.5)
        assert set(client.deployments()["flow"]["versions"]) == {"1"}


_SEEING = """
import dyorc

@dyorc.workflow
async def seen() -> dict[str, str]:
    request = dyorc.request()
    return {"id": request.id, "tenant": request.tenant, "priority": str(request.priority), **request.headers}
"""


def test_code_sees_the_same_request_in_a_copy(tmp_path: Path) -> None:
    file = tmp_path / "seeing.py"
    file.write_text(_SEEING)
    target, environment = f"{file}:seen", {"DYORC_GATEWAY__SHOWN_HEADERS": '["x-user"]'}
    with (
        serving(target, in_process=True, environment=environment) as server,
        dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client,
        client_of(server) as http,
    ):
        file.write_text(f"{_SEEING}\n# changed\n")
        client.deploy(target, shadow=1.0)

        def look() -> bool:
            answer = http.post("/run/seen", json={}, headers={"x-request-id": "mine", "x-priority": "3", "x-user": "ada"})
            assert answer.json() == {"id": "mine", "tenant": "", "priority": "3", "x-user": "ada"}
            copies = client.deployments()["seen"]["versions"]["2"].get("traffic", {}).get("shadow", {})
            assert copies.get("different", 0) == 0, copies["last_difference"]
            return copies.get("same", 0) >= 3

        wait_until(look, "enough copies have been compared")
        assert {record["tenant"] for record in client.requests(limit=200) if record["transport"] == "shadow"} == {"(shadow)"}
