"""What real servers log, in every process, and what can be changed while they run."""

import json
from typing import Any

import pytest

from dyorc.testing import ServerProcess
from tests.server_process import serving, target

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
