"""Some failed starts of Ray, as on a machine that is too busy, are tolerated."""

import sys

import psutil
import pytest

from dyorc.testing import ServerProcess
from tests.leaks import no_leaks
from tests.server_process import target

pytestmark = pytest.mark.ray


def _server(num_failures: int) -> ServerProcess:
    command = [sys.executable, "-m", "tests.e2e.ray_that_fails", str(num_failures), "serve", target("arithmetic", "double")]
    return ServerProcess([*command, "--port", "0", "--verbose"])


def test_ray_that_fails_once_is_started_again_and_nothing_of_the_first_is_left() -> None:
    with no_leaks(), _server(1) as server:
        server.wait_for("start_failed")
        server.wait_for("replicas_handed_over")
        names = [psutil.Process(pid).name() for pid in server.pids()]
        assert names.count("gcs_server") == 1
        server.stop()
        assert server.process.returncode == 0
        assert not server.leftovers()


@pytest.mark.slow
def test_the_error_of_ray_failing_each_time_is_one_line() -> None:
    with no_leaks(), _server(4) as server:
        server.wait()
        assert server.process.returncode == 1
        assert server.lines[-1].startswith(
            "dyorc: Ray could not be started, tried 4 times: Exception: The current node timed out"
        )
        assert "Traceback" not in server.output
        assert not server.leftovers()
