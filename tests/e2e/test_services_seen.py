"""What operators see of gateways and orchestrators: one trace, one story of a request, one page, one limit, in whichever process
the parts are known.
"""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.testing import ServerProcess
from tests import oip
from tests.collector import Collector, Received, caller, collecting_by_grpc, one
from tests.deadlines import TIMEOUT_S, wait_until
from tests.leaks import no_leaks
from tests.parted import Cluster, cluster
from tests.server_process import COMMAND, client_of, target

pytestmark = pytest.mark.together

X = np.array([1, 2, 3, 4], np.float32)
TARGETS = [target("traced", "guarded_traced"), target("slow", "resting"), target("slow", "gated")]


class Seen(NamedTuple):
    """Two gateways, each with its own port, before one orchestrator; all of them send spans."""

    cluster: Cluster
    orchestrator: ServerProcess
    gateways: list[ServerProcess]
    collector: Collector


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    with no_leaks(), collecting_by_grpc() as collector, cluster() as found:
        traces = {
            "DYORC_TELEMETRY__TRACES__ENDPOINT": collector.url,
            "DYORC_TELEMETRY__TRACES__RATIO": "0",
            "DYORC_TELEMETRY__TRACES__SLOW_OR_FAILED": "false",
        }
        with (
            found.orchestrator(TARGETS, **traces) as orchestrator,
            found.gateway(**traces) as first,
            found.gateway(**traces) as second,
        ):
            for gateway in (first, second):
                gateway.wait_until_ready()
            yield Seen(found, orchestrator, [first, second], collector)


def ask(gateway: ServerProcess, model: str, headers: dict[str, str] | None = None, name: str = "", **parameters: object) -> None:
    """Sends one request."""
    body = oip.json_body({"x": X}, parameters=parameters)
    content = json.dumps(json.loads(body.content) | ({"id": name} if name else {}))
    with client_of(gateway) as client:
        client.post(f"/v2/models/{model}/infer", content=content, headers=headers).raise_for_status()


def test_a_request_is_one_trace_from_its_caller_to_its_programs(seen: Seen) -> None:
    trace_id, headers = caller()
    ask(seen.gateways[0], "guarded_traced", headers)
    names = ("infer guarded_traced", "batch look_traced", "batch work_traced", "look closely", "work hard")
    spans = seen.collector.wait_for_trace(trace_id, *names)
    root = one(spans, "infer guarded_traced")
    assert root.parent_id == "c" * 16
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans)
    assert all(span.parent_id in ids for span in spans if span is not root), "no span hangs in the air"
    assert one(spans, "work hard").attributes["pid"] == seen.orchestrator.process.pid
    assert one(spans, "work hard").parent_id == one(spans, "batch work_traced").span_id
    assert root.service["service.instance.id"] != one(spans, "work hard").service["service.instance.id"]


def test_a_batch_of_requests_at_two_gateways_is_one_span_with_links_to_them_all(seen: Seen, tmp_path: Path) -> None:
    """While the first request's batch runs, the others wait and then share one."""
    num_requests = 8
    callers = [caller() for _ in range(num_requests)]
    with ThreadPoolExecutor(num_requests) as threads:
        for number, (_, headers) in enumerate(callers):
            threads.submit(ask, seen.gateways[number % 2], "resting", headers, rest_s=0.5)
    ids = {trace_id for trace_id, _ in callers}

    def mine(spans: list[Received], name: str) -> list[Received]:
        return [span for span in spans if span.trace_id in ids and span.name == name]

    spans = seen.collector.wait_for(lambda spans: len(mine(spans, "infer resting")) == num_requests)
    calls = {span.place: span for span in mine(spans, "call resting_program")}
    spans = seen.collector.wait_for(
        lambda spans: sum(b.attributes["dyorc.batch.size"] for b in mine(spans, "batch resting_program")) >= num_requests
    )
    batches = mine(spans, "batch resting_program")
    assert sum(batch.attributes["dyorc.batch.size"] for batch in batches) == num_requests, "each batch once"
    assert max(batch.attributes["dyorc.batch.size"] for batch in batches) > 1
    for batch in batches:
        assert calls.pop((batch.trace_id, batch.parent_id)).links == []
        assert len(batch.links) == batch.attributes["dyorc.batch.size"] - 1
        for link in batch.links:
            assert calls.pop(link).links == [batch.place], "the links go both ways"
    assert not calls


def test_a_gateway_explains_a_request_with_the_batches_of_its_orchestrator(seen: Seen) -> None:
    gateway = seen.gateways[0]
    ask(gateway, "resting", name="explained", rest_s=0.3)
    with client_of(gateway) as client:
        wait_until(lambda: client.get("/requests/explained").status_code == 200, "there is a record")
        found = client.get("/requests/explained").json()
    assert found["stages"]["compute_ms"] >= 300 * 0.95
    assert sum(found["stages"].values()) == pytest.approx(found["duration_ms"], rel=0.05)
    (batch,) = found["batches"].values()
    assert batch["outcome"] == "done"
    assert batch["infer_ms"] >= 300 * 0.95
    assert [request["request_id"] for request in batch["requests"]] == ["explained"]
    command = [COMMAND, "explain", "explained", "--url", gateway.url]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True).stdout
    assert told.startswith("explained: resting, ")
    assert "'resting_program' computed" in told


def test_the_page_shows_the_programs_of_the_orchestrator(seen: Seen) -> None:
    before = [live_of(gateway) for gateway in seen.gateways]
    ask(seen.gateways[0], "resting", rest_s=0.0)
    ask(seen.gateways[1], "resting", rest_s=0.0)
    for gateway, earlier in zip(seen.gateways, before, strict=True):
        wanted = earlier["programs"]["resting_program"]["calls_total"] + 2
        wait_until(
            lambda gateway=gateway, wanted=wanted: live_of(gateway)["programs"]["resting_program"]["calls_total"] == wanted,
            "calls for both gateways are counted, whichever is asked",
        )
        live = live_of(gateway)
        assert set(live["programs"]) == {"look_traced", "work_traced", "resting_program", "gated_program"}
        program = live["programs"]["resting_program"]
        assert program["state"] == "ready"
        assert sum(program["batch_sizes"].values()) == program["batches_total"] > 0
        assert {"guarded_traced", "resting", "gated"} <= set(live["workflows"])


def live_of(gateway: ServerProcess) -> dict[str, Any]:
    """Returns what the page of a gateway reads."""
    with client_of(gateway) as client:
        return client.get("/live").raise_for_status().json()


def test_a_tenants_limit_holds_for_all_processes_of_a_gateway(seen: Seen, tmp_path: Path) -> None:
    key, record = new_key()
    write_tenants(tmp_path / "keys.toml", [TenantRecord(name="one", keys=[record], max_requests=1)])
    settings = {"DYORC_GATEWAY__KEYS_FILE": str(tmp_path / "keys.toml")}
    body = oip.json_body({"x": X}, parameters={"folder": str(tmp_path)})
    with seen.cluster.gateway("--processes", "2", **settings) as gateway, client_of(gateway, key) as client:
        gateway.wait_until_ready()

        def status() -> int:
            """Asks on a separate connection, so that either process may take it."""
            return client.post("/v2/models/gated/infer", content=body.content, headers={"connection": "close"}).status_code

        with ThreadPoolExecutor(1) as threads:
            holding = threads.submit(status)
            wait_until((tmp_path / "started-1").exists, "one request is in flight")
            assert [status() for _ in range(12)] == [429] * 12  # they cannot all have met the same process
            (tmp_path / "open").touch()
            assert holding.result(TIMEOUT_S) == 200
        wait_until(lambda: status() == 200, "nothing is in flight")
        assert client.get("/v2/models/gated/config", headers={"X-API-Key": "no"}).status_code == 401
