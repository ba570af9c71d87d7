"""Ray starts even if the user's module imports it. One failed start, as on a machine that is too busy, is tolerated."""

import sys

import numpy as np
import psutil
import pytest

from dyorc.testing import ServerProcess
from tests import oip
from tests.leaks import no_leaks
from tests.server_process import client_of, serving, target

pytestmark = pytest.mark.ray


def _server(num_failures: int) -> ServerProcess:
    command = [sys.executable, "-m", "tests.e2e.ray_that_fails", str(num_failures), "serve", target("arithmetic", "double")]
    return ServerProcess([*command, "--port", "0", "--verbose"])


def test_ray_that_fails_once_is_started_again_and_nothing_of_the_first_is_left() -> None:
    with no_leaks(), _server(1) as server:
        server.wait_until_ready()
        assert "start_failed" in server.output
        names = [psutil.Process(pid).name() for pid in server.pids()]
        assert names.count("gcs_server") == 1
        server.stop()
        assert server.process.returncode == 0
        assert not server.leftovers()


def test_the_error_of_ray_failing_twice_is_one_line() -> None:
    with no_leaks(), _server(2) as server:
        server.wait()
        assert server.process.returncode == 1
        assert server.lines[-1].startswith(
            "dyorc: Ray could not be started, tried 2 times: Exception: The current node timed out"
        )
        assert "Traceback" not in server.output
        assert not server.leftovers()


def test_a_module_may_import_ray_before_it_is_started() -> None:
    with no_leaks(), serving([target("with_ray", "seen_from_ray")]) as server:
        body = oip.json_body({"x": np.zeros(1, np.float32)})
        with client_of(server) as client:
            answer = client.post("/v2/models/seen_from_ray/infer", content=body.content, headers=body.headers)
        assert next(iter(oip.read(answer).outputs.values())) == [1]
        server.stop()
        assert not server.leftovers()
