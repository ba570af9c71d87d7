"""Jobs of a server in parts: what a gateway has accepted is kept, whichever of the processes that share the file end."""

import contextlib
import signal
import sqlite3

import numpy as np
import pytest

import dyorc
from tests.deadlines import TIMEOUT_S
from tests.parted import cluster
from tests.server_process import target

pytestmark = pytest.mark.together

X = np.array([1, 2, 3, 4], np.float32)
TARGETS = [target("arithmetic", "quadruple")]
NUM_JOBS = 10


def test_jobs_outlive_the_end_of_an_orchestrator_and_then_of_all() -> None:
    with cluster() as parts:
        with parts.gateway() as gateway, dyorc.Client(gateway.url, timeout_s=TIMEOUT_S) as client:
            with parts.orchestrator(TARGETS) as first:
                gateway.wait_until_ready()
                first.stop(signal.SIGTERM)  # the first to close the file that the gateway goes on to use
            with parts.orchestrator(TARGETS) as second:
                second.wait_until_ready()
                ids = [client.submit("quadruple", x=X).id for _ in range(NUM_JOBS)]
                second.process.kill()
                gateway.process.kill()
        with contextlib.closing(sqlite3.connect(parts.environment["DYORC_STORE"].removeprefix("sqlite://"))) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with (
            parts.orchestrator(TARGETS),
            parts.gateway() as gateway,
            dyorc.Client(gateway.url, timeout_s=TIMEOUT_S) as client,
        ):
            gateway.wait_until_ready()
            for job_id in ids:
                np.testing.assert_array_equal(client.job(job_id).result(timeout_s=TIMEOUT_S), X * 4)
