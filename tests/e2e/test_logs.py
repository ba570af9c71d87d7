"""What real servers log, in every process, and what can be changed while they run."""

import json
import os
import signal
from typing import Any

import httpx
import psutil
import pytest

from dyorc.testing import ServerProcess
from tests.deadlines import wait_until
from tests.server_process import client_of, despite_kills, serving, target

JSON = {"DYORC_TELEMETRY__LOGS__FORMAT": "json"}


def json_lines(server: ServerProcess) -> list[dict[str, Any]]:
    """Returns the lines that are JSON; those for people go to standard output."""
    return [json.loads(line) for line in list(server.lines) if line.startswith("{")]


@pytest.mark.parametrize("options", [[], ["--cells", "2"]])
def test_all_that_is_logged_is_json(options: list[str]) -> None:
    with serving([target("arithmetic", "quadruple"), *options], in_process=True, **JSON) as server:
        joined = [line for line in json_lines(server) if line["event"] == "replica_joined"]
        cells = [line.get("cell") for line in joined]
    assert sorted(set(cells)) == ([0, 1] if options else [None])
    known = ("Listening on", "gRPC on", "Ready after", "Stopping", "Stopped", "  ")
    for line in server.lines:
        assert line.startswith(known) or json.loads(line)["level"], line


GOOD = {"inputs": [{"name": "x", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
BAD = {"inputs": []}


def request_lines(server: ServerProcess) -> list[dict[str, Any]]:
    """Returns the lines about requests."""
    return [line for line in json_lines(server) if line["event"] == "request"]


def send_all(client: httpx.Client) -> list[str]:
    """Sends a good request and three that are refused, each at another place. Returns the ids of the latter."""
    path = "/v2/models/quadruple/infer"
    client.post(path, json=GOOD, headers={"X-Request-Id": "good"}).raise_for_status()
    bad = [client.post(path, json=BAD), client.post("/v2/models/nix/infer", json=GOOD), client.post(path, content=b"x" * 3000)]
    assert [answer.status_code for answer in bad] == [400, 404, 413]
    return [answer.json()["request_id"] for answer in bad]


def test_requests_get_lines_as_asked_for() -> None:
    settings = JSON | {"DYORC_GATEWAY__MAX_REQUEST_BYTES": "2000"}
    with serving([target("arithmetic", "quadruple")], in_process=True, **settings) as server, client_of(server) as client:

        def set_to(which: str) -> None:
            answer = client.post("/v2/logging", json={"log_requests": which})
            assert (answer.status_code, answer.json()["log_requests"]) == (200, which)

        send_all(client)
        assert request_lines(server) == []
        set_to("errors")
        refused = send_all(client)
        wait_until(lambda: len(request_lines(server)) == 3, "each refusal has a line")
        lines = request_lines(server)
        assert [line["request_id"] for line in lines] == refused
        assert [(line["status"], line["outcome"]) for line in lines] == [
            (400, "invalid_input"), (404, "unknown_model"), (413, "payload_too_large"),
        ]  # fmt: skip
        set_to("all")
        send_all(client)
        wait_until(lambda: len(request_lines(server)) == 7, "all requests have lines")
        good = next(line for line in request_lines(server) if line["request_id"] == "good")
        assert (good["workflow"], good["transport"], good["outcome"], good["status"]) == ("quadruple", "http", "ok", 200)
        assert (good["num_calls"], good["num_guesses"], good["level"]) == (2, 0, "info")
        assert good["duration_ms"] > 0
        assert good["cause"]
        set_to("slow")
        client.post("/v2/models/quadruple/infer", json=GOOD)
        set_to("off")
        send_all(client)
        assert len(request_lines(server)) == 7


def test_settings_reach_all_cells_and_those_that_start_later() -> None:
    options = [target("arithmetic", "quadruple"), "--cells", "2"]
    with serving(options, in_process=True, **JSON) as server:
        with client_of(server) as client:
            client.post("/v2/logging", json={"log_requests": "all"}).raise_for_status()

        def cells_seen() -> set[int]:
            with client_of(server) as client:  # another connection, perhaps to another cell
                client.post("/v2/models/quadruple/infer", json=GOOD).raise_for_status()
                assert client.get("/v2/logging").json()["log_requests"] == "all"
            return {line["cell"] for line in request_lines(server)}

        wait_until(lambda: cells_seen() == {0, 1}, "both cells write lines")
        before = len(request_lines(server))
        os.kill(psutil.Process(server.process.pid).children()[0].pid, signal.SIGKILL)
        wait_until(lambda: "is ready again" in "".join(server.lines), "the cell has started again")

        def seen_since() -> set[int]:
            despite_kills(cells_seen)
            return {line["cell"] for line in request_lines(server)[before:]}

        wait_until(lambda: seen_since() == {0, 1}, "the cell that started later writes lines, too")
