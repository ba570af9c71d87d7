"""A server that stops waits for the effects of requests that it has answered, and says which it had to give up."""

import signal
from pathlib import Path

import numpy as np
import pytest

import dyorc
from tests.deadlines import wait_until
from tests.server_process import client_of, server_of, target

X = np.array([1, 2, 3, 4], np.float32)

pytestmark = pytest.mark.together


@pytest.mark.parametrize("is_open", [True, False])
def test_a_stop_waits_for_effects_as_long_as_it_may(tmp_path: Path, is_open: bool) -> None:
    settings = {"DYORC_GATEWAY__DRAIN_TIMEOUT_S": "60" if is_open else "0.2"}
    with server_of([target("effects", "aside")], in_process=True, **settings) as server:
        server.wait_until_ready()
        with dyorc.Client(server.url) as client:
            for _ in range(3):
                assert client.infer("aside", x=X, folder=str(tmp_path))[0] == 2
        with client_of(server) as http:
            assert 'dyorc_pending_effects{workflow="aside"} 3' in http.get("/metrics").text
        server.process.send_signal(signal.SIGTERM)
        if is_open:
            server.wait_for("Stopping")
            (tmp_path / "open").touch()
        else:
            wait_until(lambda: "effects_lost" in server.output, "what is lost is said")
            (tmp_path / "open").touch()  # its thread could not end
        assert server.process.wait(60) == 0
        if is_open:
            assert (tmp_path / "runs").read_text().split() == ["1", "1", "1"]
            assert "effects_lost" not in server.output
        else:
            assert "num_effects" in server.output
            assert "aside" in server.output.split("effects_lost")[1]
            assert "effects_not_begun" in server.output, "only one runs at a time"
