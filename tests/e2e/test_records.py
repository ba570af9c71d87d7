"""A slow request is found, and explained, on real servers: one cell, and two of which either may be asked."""

import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from dyorc.testing import ServerProcess
from tests import oip
from tests.deadlines import wait_until
from tests.leaks import no_leaks
from tests.server_process import COMMAND, client_of, serving, target

X = np.array([1, 2, 3, 4], np.float32)
SLOW_S = 0.5
_SLEEPER = [target("slow", "resting"), target("arithmetic", "quadruple")]


@pytest.fixture(scope="module", params=[1, 2])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """One cell without a supervisor, or two with one."""
    cells = [] if request.param == 1 else ["--cells", "2"]
    with no_leaks(), serving([*_SLEEPER, *cells], in_process=True) as found:
        yield found


def ask(server: ServerProcess, model: str, request_id: str, **parameters: Any) -> None:
    """Sends a request on a separate connection, so that any cell may take it."""
    with client_of(server) as client:
        body = oip.json_body({"x": X}, parameters=parameters)
        content = json.dumps(json.loads(body.content) | {"id": request_id})
        client.post(f"/v2/models/{model}/infer", content=content).raise_for_status()


def record_of(client: httpx.Client, request_id: str) -> dict[str, Any]:
    """Returns what is known of a request, once its record is there: its answer may be read before that."""

    def is_there() -> bool:
        return client.get(f"/requests/{request_id}").status_code == 200

    wait_until(is_there, f"there is a record of {request_id}")
    return client.get(f"/requests/{request_id}").json()


def test_a_slow_request_is_found_and_explained(server: ServerProcess) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ask(server, "quadruple", f"quick-{number}"), range(16)))
    ask(server, "resting", "slow-one", rest_s=SLOW_S)
    with client_of(server) as client:
        record_of(client, "slow-one")
        page = client.get("/requests", params={"order": "slowest"}).json()
        durations_ms = [one["duration_ms"] for one in page["requests"]]
        assert durations_ms == sorted(durations_ms, reverse=True)
        assert "compute" in [one["cause"] for one in page["requests"] if one["request_id"] == "slow-one"]
        assert page["num_kept"] >= 17
        assert page["missing_cells"] == []
        assert len(client.get("/requests?workflow=quadruple&limit=500").json()["requests"]) >= 16
        found = record_of(client, "slow-one")
    assert found["duration_ms"] >= SLOW_S * 1e3
    assert sum(found["stages"].values()) == pytest.approx(found["duration_ms"], rel=0.05)
    assert found["stages"]["compute_ms"] >= SLOW_S * 1e3 * 0.95
    assert "'resting_program' computed" in found["diagnosis"][0]
    (call,) = found["calls"]
    (batch,) = found["batches"].values()
    assert (call["program"], call["outcome"], batch["outcome"]) == ("resting_program", "done", "done")
    assert batch["requests"][0]["request_id"] == "slow-one"
    assert batch["infer_ms"] >= SLOW_S * 1e3 * 0.95


def test_a_request_that_waited_for_another(server: ServerProcess) -> None:
    """They differ in a parameter, so they share no batch. Of six, at least three came to the same cell."""
    names = [f"wait-{number}" for number in range(6)]
    rests_s = [SLOW_S + number / 1e3 for number in range(6)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name, rest_s: ask(server, "resting", name, rest_s=rest_s), names, rests_s))
    with client_of(server) as client:
        records = [record_of(client, name) for name in names]
    for found in records:
        assert sum(found["stages"].values()) == pytest.approx(found["duration_ms"], rel=0.05)
    last = max(records, key=lambda one: one["duration_ms"])
    assert last["cause"] == "queue"
    assert "waited in the queue" in last["diagnosis"][0]


def test_a_failed_request_has_a_story_too(server: ServerProcess) -> None:
    with client_of(server) as client:
        body = oip.json_body({"x": X}, parameters={"rest_s": 2.0, "timeout": 200_000})
        content = json.dumps(json.loads(body.content) | {"id": "late"})
        assert client.post("/v2/models/resting/infer", content=content).status_code == 504
        found = record_of(client, "late")
        assert "late" in [one["request_id"] for one in client.get("/requests?outcome=failed").json()["requests"]]
    assert found["outcome"] == "deadline"
    assert found["stages"]["compute_ms"] > 100


def test_an_unknown_request(server: ServerProcess) -> None:
    with client_of(server) as client:
        answer = client.get("/requests/never")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_request")


def test_the_command_line_explains_and_traces(server: ServerProcess, tmp_path: Any) -> None:
    ask(server, "quadruple", "told")
    with client_of(server) as client:
        record_of(client, "told")
    told = subprocess.run([COMMAND, "explain", "told", "--url", server.url], capture_output=True, text=True, check=True)
    first, second, *_ = told.stdout.splitlines()
    assert first.startswith("told: quadruple, ")
    assert re.fullmatch(r" +[\d.,]+ ms of [\d.,]+ ms: .+", second)
    file = tmp_path / "trace.json"
    subprocess.run([COMMAND, "trace", "--seconds", "60", "-o", str(file), "--url", server.url], check=True, capture_output=True)
    events = json.loads(file.read_text())["traceEvents"]
    assert "told" in [event["args"]["request_id"] for event in events if event.get("cat") == "request"]
    assert {event["id"] for event in events if event["ph"] == "s"} == {event["id"] for event in events if event["ph"] == "f"}
