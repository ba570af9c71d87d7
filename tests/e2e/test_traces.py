"""Traces of a real server, sent by the real exporters to a collector: of a cell over gRPC, of replicas on Ray over HTTP."""

import asyncio
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import numpy as np
import pytest
from opentelemetry import trace

import dyorc
from dyorc.testing import ServerProcess
from tests import oip, oip_grpc
from tests.collector import Collector, Received, caller, collecting_by_grpc, collecting_by_http, one
from tests.leaks import no_leaks
from tests.server_process import client_of, replica_pids, serving, target

X = np.array([1, 2, 3, 4], np.float32)
TARGETS = [
    target("traced", "guarded_traced"),
    target("slow", "resting"),
    target("streaming", "count_up"),
    target("large", "chain"),
]


@dataclass(frozen=True)
class Traced:
    """A server that traces what its callers want, and its collector."""

    server: ServerProcess
    collector: Collector

    def pids_of(self, program: str) -> list[int]:
        """Returns the processes in which a program runs."""
        return replica_pids(self.server, program) or [self.server.process.pid]


@pytest.fixture(
    scope="module",
    params=[pytest.param("cell", marks=pytest.mark.together), pytest.param("ray", marks=pytest.mark.ray)],
)
def traced(request: pytest.FixtureRequest) -> Iterator[Traced]:
    in_process = request.param == "cell"
    collecting = collecting_by_grpc if in_process else collecting_by_http
    with no_leaks(), collecting() as collector:
        settings = {
            "DYORC_TELEMETRY__TRACES__ENDPOINT": collector.url,
            "DYORC_TELEMETRY__TRACES__PROTOCOL": "grpc" if in_process else "http/protobuf",
            "DYORC_TELEMETRY__TRACES__RATIO": "0",
            "DYORC_TELEMETRY__TRACES__SLOW_OR_FAILED": "false",
            "OTEL_SERVICE_NAME": "under-test",
        }
        with serving(TARGETS, in_process=in_process, **settings) as server:
            yield Traced(server, collector)
            server.stop()
            assert server.process.returncode == 0, server.output
            assert server.leftovers() == []


def infer(http: httpx.Client, model: str, headers: dict[str, str], x: oip.Array = X, path: str = "infer") -> httpx.Response:
    body = oip.json_body({"x": x})
    answer = http.post(f"/v2/models/{model}/{path}", content=body.content, headers={**body.headers, **headers})
    assert answer.status_code == 200, answer.text
    return answer


def test_a_trace_shows_a_request_as_a_tree(traced: Traced) -> None:
    trace_id, headers = caller()
    with client_of(traced.server) as http:
        infer(http, "guarded_traced", headers)
    spans = traced.collector.wait_for_trace(
        trace_id, "infer guarded_traced", "batch look_traced", "batch work_traced", "look closely", "work hard"
    )
    root = one(spans, "infer guarded_traced")
    assert root.parent_id == "c" * 16
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans)
    assert all(span.parent_id in ids for span in spans if span is not root), "no span hangs in the air"
    for program, mine in (("look_traced", "look closely"), ("work_traced", "work hard")):
        call, batch, inner = one(spans, f"call {program}"), one(spans, f"batch {program}"), one(spans, mine)
        assert (call.parent_id, batch.parent_id, inner.parent_id) == (root.span_id, call.span_id, batch.span_id)
        assert root.started_ns <= call.started_ns <= batch.started_ns <= inner.started_ns
        assert inner.ended_ns <= batch.ended_ns <= call.ended_ns <= root.ended_ns
        assert batch.attributes["dyorc.infer_s"] >= 0.03
    decision = next(span for span in spans if span.name.startswith("decision at "))
    assert "traced.py, line" in decision.attributes["dyorc.decision"]
    assert decision.attributes["dyorc.outcome"] == "True"
    assert {span.service["service.name"] for span in spans} == {"under-test"}
    assert one(spans, "work hard").attributes["pid"] in traced.pids_of("work_traced")


def test_tensors_that_move_are_shown_with_their_way_and_size(traced: Traced) -> None:
    if traced.pids_of("ramp") == [traced.server.process.pid]:
        pytest.skip("in a cell, tensors are where they are needed")
    trace_id, headers = caller()
    with client_of(traced.server) as http:
        body = oip.json_body({"seed": X[:1]})
        answer = http.post("/v2/models/chain/infer", content=body.content, headers={**body.headers, **headers})
        assert answer.status_code == 200, answer.text
    spans = traced.collector.wait_for_trace(trace_id, "infer chain", "tensors by message", "tensors by shm")
    seed = one(spans, "tensors by message")
    assert (seed.parent_id, seed.attributes["dyorc.num_bytes"]) == (one(spans, "batch ramp").span_id, 4)
    batches = {span.span_id for span in spans if span.name.startswith("batch ")}
    large = [span for span in spans if span.name == "tensors by shm"]
    assert {span.attributes["dyorc.num_bytes"] for span in large} == {8_000_000}
    assert {span.parent_id for span in large} <= batches


def test_a_wrong_guess_appears_as_such(traced: Traced) -> None:
    """Whether one is made depends on what is busy; when nothing is, it soon is."""
    with client_of(traced.server) as http:
        for _ in range(50):
            trace_id, headers = caller()
            infer(http, "guarded_traced", headers, -X)
            spans = traced.collector.wait_for_trace(trace_id, "infer guarded_traced")
            if guess := [span for span in spans if span.name == "call work_traced"]:
                break
    assert guess[0].attributes["dyorc.outcome"] == "squashed"
    assert guess[0].attributes["dyorc.is_guess"]
    assert "the guess is wrong" in guess[0].events
    decision = next(span for span in spans if span.name.startswith("decision at "))
    assert decision.attributes["dyorc.outcome"] == "False"
    assert decision.attributes["dyorc.guess.True.probability"] > 0.5


def test_a_batch_is_one_span_with_links_to_all_of_its_requests(traced: Traced) -> None:
    """While the first request's batch runs, the others wait and then share one."""
    num_requests = 6
    body = oip.json_body({"x": X}, parameters={"rest_s": 0.5})

    def ask(headers: dict[str, str]) -> None:
        with client_of(traced.server) as http:
            answer = http.post("/v2/models/resting/infer", content=body.content, headers={**body.headers, **headers})
            assert answer.status_code == 200, answer.text

    callers = [caller() for _ in range(num_requests)]
    with ThreadPoolExecutor(num_requests) as threads:
        list(threads.map(ask, [headers for _, headers in callers]))
    ids = {trace_id for trace_id, _ in callers}

    def mine(spans: list[Received], name: str) -> list[Received]:
        return [span for span in spans if span.trace_id in ids and span.name == name]

    spans = traced.collector.wait_for(lambda spans: len(mine(spans, "infer resting")) == num_requests)
    calls = {span.place: span for span in mine(spans, "call resting_program")}
    assert len(calls) == num_requests
    batches = mine(spans, "batch resting_program")
    assert sum(batch.attributes["dyorc.batch.size"] for batch in batches) == num_requests, "each batch once"
    shared = max(batches, key=lambda batch: batch.attributes["dyorc.batch.size"])
    assert shared.attributes["dyorc.batch.size"] > 1
    for batch in batches:
        home = calls.pop((batch.trace_id, batch.parent_id))
        assert home.links == []
        assert len(batch.links) == batch.attributes["dyorc.batch.size"] - 1
        for link in batch.links:
            assert calls.pop(link).links == [batch.place], "the links go both ways"
    assert not calls


def test_callers_decide_over_http_whatever_the_route(traced: Traced) -> None:
    with client_of(traced.server) as http:
        asked = {path: caller() for path in ("infer", "infer_stream")}
        silent_id, silent = caller(is_sampled=False)
        infer(http, "guarded_traced", silent)
        infer(http, "guarded_traced", {})
        infer(http, "guarded_traced", asked["infer"][1])
        stream = oip.json_body({"x": X[:2]}, parameters={"num_parts": 2})
        headers = {**stream.headers, **asked["infer_stream"][1]}
        with http.stream("POST", "/v2/models/count_up/infer_stream", content=stream.content, headers=headers) as answer:
            answer.read()
            assert answer.status_code == 200
    traced.collector.wait_for_trace(asked["infer"][0], "infer guarded_traced", "call look_traced")
    parts = traced.collector.wait_for_trace(asked["infer_stream"][0], "infer count_up", "part of the answer")
    assert len([span for span in parts if span.name == "part of the answer"]) == 2
    assert not [span for span in traced.collector.spans if span.trace_id == silent_id]
    assert not [span for span in traced.collector.spans if not span.parent_id], "without a caller, chance decides: never here"


def test_the_metadata_of_a_grpc_call_carries_the_trace(traced: Traced) -> None:
    trace_id, headers = caller()

    async def ask() -> None:
        async with oip_grpc.connected(traced.server.grpc_address) as stub:
            await stub.ModelInfer(oip_grpc.request("guarded_traced", {"x": X}), metadata=tuple(headers.items()))

    asyncio.run(ask())
    spans = traced.collector.wait_for_trace(trace_id, "infer guarded_traced", "batch work_traced")
    root = one(spans, "infer guarded_traced")
    assert root.parent_id == "c" * 16
    assert root.attributes["rpc.system"] == "grpc"


def test_the_client_passes_its_current_span_on(traced: Traced) -> None:
    trace_id = secrets.token_hex(16)
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    current = trace.NonRecordingSpan(trace.SpanContext(int(trace_id, 16), int("d" * 16, 16), False, flags))
    with trace.use_span(current), dyorc.Client(traced.server.url) as client:
        client.infer("guarded_traced", x=X)
    spans = traced.collector.wait_for_trace(trace_id, "infer guarded_traced")
    assert one(spans, "infer guarded_traced").parent_id == "d" * 16


def test_a_job_belongs_to_the_trace_of_its_submission(traced: Traced) -> None:
    trace_id, headers = caller()
    with client_of(traced.server) as http:
        body = oip.json_body({"x": X}, model_name="guarded_traced")
        job = http.post("/v1/jobs", content=body.content, headers={**body.headers, **headers}).json()
        assert http.get(f"/v1/jobs/{job['id']}", params={"wait_s": "60"}).json()["state"] == "succeeded"
    spans = traced.collector.wait_for_trace(trace_id, "submit guarded_traced", "infer guarded_traced", "batch work_traced")
    submitted, attempt = one(spans, "submit guarded_traced"), one(spans, "infer guarded_traced")
    assert (submitted.parent_id, attempt.parent_id) == ("c" * 16, submitted.span_id)
    assert submitted.attributes["dyorc.job"] == job["id"] == attempt.attributes["dyorc.request_id"]
