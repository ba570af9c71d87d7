"""How a server ends: cleanly on SIGINT and SIGTERM, at any time; and what is left if it cannot."""

import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests import oip
from tests.deadlines import TIMEOUT_S, wait_until
from tests.leaks import no_leaks
from tests.server_process import COMMAND, client_of, server_of, target

pytestmark = pytest.mark.ray

X = np.array([1, 2, 3, 4], np.float32)


def test_one_program_that_cannot_load_leaves_the_others_alone_and_the_server_stops_on_sigterm() -> None:
    with no_leaks(), server_of([target("faulty", "needs_weights"), target("arithmetic", "quadruple")]) as server:
        with client_of(server) as client:
            wait_until(lambda: client.get("/v2/models/quadruple/ready").status_code == 200, "the good one is ready")
            body = oip.json_body({"x": X})
            failed = client.post("/v2/models/needs_weights/infer", content=body.content)
            assert failed.status_code == 500
            assert oip.error_text(failed) == "program 'weightless' failed: FileNotFoundError: no weights at model.safetensors"
            good = client.post("/v2/models/quadruple/infer", content=body.content)
            np.testing.assert_array_equal(oip.read(good).outputs["output"], X * 4)
            health = client.get("/v2/health/ready")
            assert health.status_code == 503
            assert "no weights at model.safetensors" in oip.error_text(health)
        seconds = server.stop(signal.SIGTERM)
        print(f"\nSIGTERM: stopped after {seconds:.1f} s; failed after {failed.elapsed.total_seconds():.1f} s")
        assert server.process.returncode == 0, server.output
        assert server.leftovers() == []


def test_requests_in_flight_are_answered_although_ray_takes_sigterm_for_a_crash(tmp_path: Path) -> None:
    """Its handler would abort the process 3 s later."""
    with no_leaks(), server_of([target("effects", "noted")]) as server, ThreadPoolExecutor() as threads:
        server.wait_until_ready()
        server.wait_for("replicas_handed_over")
        tensor = {"name": "x", "shape": [], "datatype": "INT64", "data": [7]}
        body = {"inputs": [tensor], "parameters": {"folder": str(tmp_path), "rest_s": 5.0}}
        with client_of(server) as client:
            answer = threads.submit(client.post, "/v2/models/noted/infer", json=body)
            wait_until((tmp_path / "runs").exists, "the program runs")
            server.stop(signal.SIGTERM)
            assert oip.read(answer.result()).outputs["output"] == 50
        assert server.process.returncode == 0, server.output
        assert "SIGTERM received" not in server.output
        assert server.leftovers() == []


@pytest.mark.parametrize("moment", ["Starting a local Ray", "Listening on", "slow_to_load: loading"])
def test_it_stops_cleanly_while_it_is_still_starting(moment: str) -> None:
    with no_leaks(), server_of([target("slow", "never_ready")]) as server:
        server.wait_for(moment)
        seconds = server.stop()
        print(f"\nSIGINT at {moment!r}: stopped after {seconds:.1f} s")
        assert server.process.returncode == 0, server.output
        assert "Traceback" not in server.output
        assert server.leftovers() == []


def test_the_error_of_a_wrong_target_is_one_line() -> None:
    for wrong, says in (
        (target("arithmetic", "quadrupel"), "has no workflow or program 'quadrupel'; it has ["),
        ("nowhere.py:flow", "there is no file"),
        ("no.such.module:flow", "there is no module 'no.such.module'"),
        ("arithmetic.py", "expected PATH:WORKFLOW"),
    ):
        with server_of([wrong]) as server:
            server.wait()
            assert server.process.returncode == 1
            lines = [line for line in server.lines if not line.startswith("Starting")]
            assert len(lines) == 1, server.output
            assert lines[0].startswith("dyorc: ")
            assert says in lines[0]
            assert server.leftovers() == []


@pytest.mark.parametrize(
    "words", [("serve", "--in-process"), ("serve", "--in-process", "--cells", "1"), ("dev",)], ids=["serve", "cells", "dev"]
)
@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
def test_the_error_of_a_taken_port_is_one_line(tmp_path: Path, words: tuple[str, ...], option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = ["--port", "0"] if option == "--grpc-port" else []
        command = [COMMAND, *words, target("arithmetic", "quadruple"), *other, option, str(port)]
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
    assert result.returncode == 1
    assert f" on 127.0.0.1:{port}: Address already in use" in result.stderr
    assert ("--grpc-port N" in result.stderr) == (option == "--grpc-port")
    assert "Traceback" not in result.stderr
    assert "Errno" not in result.stderr
