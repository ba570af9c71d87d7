"""Traces of servers that are killed, slow, or have nobody to send them to."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests import oip
from tests.collector import caller, collecting_by_grpc, one
from tests.deadlines import wait_until
from tests.leaks import no_leaks
from tests.server_process import client_of, server_of, serving, target

pytestmark = pytest.mark.together

X = np.array([1, 2, 3, 4], np.float32)


def test_an_attempt_after_a_restart_belongs_to_the_same_trace(tmp_path: Path) -> None:
    trace_id, headers = caller()
    with no_leaks(), collecting_by_grpc() as collector:
        settings = {
            "DYORC_TELEMETRY__TRACES__ENDPOINT": collector.url,
            "DYORC_STORE": f"sqlite:///{tmp_path}/jobs.sqlite",
            "DYORC_JOBS__LEASE_S": "3",
        }
        with serving([target("slow", "gated")], in_process=True, **settings) as first, client_of(first) as http:
            body = oip.json_body({"x": X}, model_name="gated", parameters={"folder": str(tmp_path)})
            job = http.post("/v1/jobs", content=body.content, headers={**body.headers, **headers}).json()
            wait_until((tmp_path / "started-1").exists, "the program runs")
            first.process.kill()
        (tmp_path / "open").touch()
        with serving([target("slow", "gated")], in_process=True, **settings) as second, client_of(second) as http:
            ended = http.get(f"/v1/jobs/{job['id']}", params={"wait_s": "60"}).json()
            assert (ended["state"], ended["num_attempts"]) == ("succeeded", 2)
            attempt = one(collector.wait_for_trace(trace_id, "infer gated"), "infer gated")
    assert attempt.kind == 5, "CONSUMER"
    assert attempt.attributes["dyorc.request_id"] == job["id"]


def test_slow_and_failed_requests_are_traced_although_chance_was_against_them() -> None:
    with no_leaks(), collecting_by_grpc() as collector:
        settings = {
            "DYORC_TELEMETRY__TRACES__ENDPOINT": collector.url,
            "DYORC_TELEMETRY__TRACES__RATIO": "0",
            "DYORC_TELEMETRY__RECORDS__SLOW_S": "0.2",
        }
        targets = [target("slow", "resting"), target("faulty", "pick")]
        with serving(targets, in_process=True, **settings) as server, client_of(server) as http:
            for rest_s in (0.3, 0.0):
                body = oip.json_body({"x": X}, parameters={"rest_s": rest_s})
                assert http.post("/v2/models/resting/infer", content=body.content).status_code == 200
            silent_id, silent = caller(is_sampled=False)
            body = oip.json_body({"x": X}, parameters={"rest_s": 0.3})
            assert http.post("/v2/models/resting/infer", content=body.content, headers=silent).status_code == 200
            roots = collector.wait_for(lambda spans: sum(span.name == "infer resting" for span in spans) == 2)
            assert silent_id in {span.trace_id for span in roots}, "in its caller's trace"
            assert "batch resting_program" in {span.name for span in roots}


def test_a_dead_collector_changes_nothing_for_requests() -> None:
    with no_leaks(), socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        settings = {
            "DYORC_TELEMETRY__TRACES__ENDPOINT": f"http://127.0.0.1:{deaf.getsockname()[1]}",
            "DYORC_TELEMETRY__TRACES__RATIO": "1",
        }
        with server_of([target("traced", "guarded_traced")], in_process=True, **settings) as server:
            server.wait_until_ready(120)
            with client_of(server) as http, ThreadPoolExecutor(4) as threads:
                body = oip.json_body({"x": X})
                answers = threads.map(lambda _: http.post("/v2/models/guarded_traced/infer", content=body.content), range(100))
                assert [answer.status_code for answer in answers] == [200] * 100
            assert server.stop() < 30
            assert server.process.returncode == 0, server.output
            assert server.output.count("spans_not_sent") <= 2, "each process says so once a minute"
            assert "Traceback" not in server.output
            assert server.leftovers() == []


def test_a_wrong_endpoint_is_named_at_the_start() -> None:
    with no_leaks(), server_of([target("slow", "resting")], in_process=True, DYORC_TELEMETRY__TRACES__ENDPOINT="h:1") as server:
        server.wait_for("the endpoint for traces is 'h:1', expected a URL")
        server.process.wait(60)
        assert server.process.returncode != 0
