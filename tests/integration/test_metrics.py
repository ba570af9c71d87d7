"""`GET /metrics` of a server with real replicas; of several processes, some ended; and whose key may see it."""

import contextlib
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dyorc.config import GatewayConfig, TelemetryConfig
from dyorc.core.arrays import Array
from dyorc.errors import TenantLimitError
from dyorc.gateway.admission import Admission
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.http.metrics_server import metrics_server
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.gateway.metrics import Metrics
from dyorc.gateway.peer_processes import NoPeers, PeerReplies
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant
from dyorc.models.registry import ModelRegistry
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.metric import MAX_TENANTS, OTHER
from dyorc.telemetry.metrics.readings import Readings
from dyorc.version import version
from tests import oip
from tests.fake_backend import FakeBackend
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, faulty

X = np.array([1, 2, 3, 4], np.float32)


def values_of(text: str) -> dict[tuple[str, ...], float]:
    """Returns all values, by name and values of labels in the order of the labels' names."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


async def scrape(stack: Stack) -> dict[tuple[str, ...], float]:
    found = await stack.client.get("/metrics")
    assert found.status_code == 200, found.text
    return values_of(found.text)


async def infer(stack: Stack, model: str, x: Array) -> httpx.Response:
    body = oip.json_body({"x": x})
    return await stack.client.post(f"/v2/models/{model}/infer", content=body.content)


async def test_a_server_counts_what_it_has_done() -> None:
    async with running([arithmetic.quadruple, faulty.picky]) as stack:
        for _ in range(3):
            (await infer(stack, "quadruple", X)).raise_for_status()
        assert (await infer(stack, "picky", -X)).is_error
        found = await scrape(stack)
    assert found["dyorc_requests_total", "ok", "quadruple"] == 3
    assert found["dyorc_requests_total", "ok", "picky"] == 0, "a series begins at 0"
    assert found["dyorc_requests_total", "program", "picky"] == 1
    assert found["dyorc_request_duration_seconds_count", "quadruple"] == 3
    assert found["dyorc_calls_total", "ok", "double"] == 6
    assert found["dyorc_call_queue_seconds_count", "double"] == 6
    assert found["dyorc_batch_size_sum", "double"] == 6
    assert sum(value for (name, *rest), value in found.items() if name == "dyorc_batches_total") == 6
    assert found["dyorc_replicas", "double", "ready"] == found["dyorc_replicas_wanted", "double"] == 1
    assert found["dyorc_moved_bytes_total", "double", "message"] == 6 * X.nbytes
    assert found["dyorc_link_sent_bytes_total",] > 0
    assert found["dyorc_engine_turn_seconds_count",] > 6
    assert 0 <= found["dyorc_arena_fill_ratio",] <= 1
    assert found["dyorc_admitted_requests_total", "anonymous"] == 4
    assert found["dyorc_tenant_requests_in_flight", "anonymous"] == 0
    assert found["dyorc_process_cpu_seconds_total",] > 0
    assert found["dyorc_cells",] == found["dyorc_cell_starts_total",] == 1
    assert found["dyorc_build_info", platform.python_version(), version()] == 1


async def test_openmetrics_is_there_for_those_who_ask() -> None:
    async with running([arithmetic.quadruple]) as stack:
        headers = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
        found = await stack.client.get("/metrics", headers=headers)
    assert found.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert found.text.endswith("# EOF\n")


async def test_the_memory_and_time_of_replica_processes_count() -> None:
    async with running([arithmetic.quadruple], num_replicas=0) as stack:
        file = Path(arithmetic.__file__)
        await stack.start_process(f"{file}:quadruple", arithmetic.double, "one")
        found = await scrape(stack)
    assert found["dyorc_replica_memory_bytes", "double"] > 2**20
    assert found["dyorc_replica_cpu_seconds_total", "double"] > 0
    assert found["dyorc_replica_arena_size_bytes", "double"] > 0


# Several processes


class Others(NoPeers):
    """Two other processes: one answers, one has ended. What this one replaces had counted something."""

    number = 1

    def __init__(self, answering: Mapping[str, Any], ended: Mapping[str, Any], inherited: Mapping[str, Any] | None) -> None:
        self.counts: Callable[[], Any] = dict
        self.num_counted = 0
        self._answers = PeerReplies({0: answering}, missing=(2,), counted={2: {"metrics": ended}})
        self._inherited = inherited and {"metrics": inherited, "statistics": {}}

    async def ask(self, topic: str, value: Any = None) -> PeerReplies:
        return self._answers

    def keep_counts(self, counts: Callable[[], Any]) -> Any:
        self.counts = counts
        return self._inherited

    def count(self) -> None:
        self.num_counted += 1


@contextlib.contextmanager
def metrics_with(others: NoPeers, config: GatewayConfig | None = None) -> Iterator[Metrics]:
    repertoire = ModelRegistry.of([arithmetic.quadruple])
    backend = FakeBackend(repertoire, lambda workflow, inputs: [list[Array](inputs)])
    with contextlib.closing(InferenceService(backend, config or GatewayConfig(port=0), others)) as service:
        yield Metrics(service, lambda readings: readings.add(catalogue.JOBS_SUBMITTED, 1))


def counted(number: int) -> dict[str, Any]:
    readings = Readings(only_counted=True)
    readings.add(catalogue.JOBS_SUBMITTED, number)
    readings.add(catalogue.CELL_STARTS, 1)
    return readings.as_values()


@pytest.mark.parametrize(("inherited", "num_submitted", "num_starts"), [(None, 111, 3), (counted(1000), 1111, 4)])
async def test_what_all_processes_have_counted_is_added_up_and_nothing_is_lost(
    inherited: dict[str, Any] | None, num_submitted: int, num_starts: int
) -> None:
    others = Others(counted(10), counted(100), inherited)
    with metrics_with(others) as metrics:
        readings = await metrics.readings()
        kept = others.counts()["metrics"]
    assert readings.of(catalogue.JOBS_SUBMITTED) == {(): num_submitted}
    assert readings.of(catalogue.CELL_STARTS) == {(): num_starts}
    assert readings.of(catalogue.CELLS) == {(): 1}, "of the ones that answer, and the other one here is no real one"
    assert kept["dyorc_jobs_submitted_total"] == [[[], num_submitted - 110]], "the next process goes on from there"
    assert "dyorc_process_memory_bytes" not in kept
    assert others.num_counted >= 2


# Who may see it


async def test_with_keys_only_one_that_may_manage_sees_the_metrics_except_on_their_own_port(tmp_path: Path) -> None:
    (operator, may), (user, may_not) = new_key(), new_key()
    keys = [msgspec.structs.replace(may, may_manage=True), may_not]
    write_tenants(tmp_path / "keys.json", [TenantRecord(name="team", keys=keys)])
    config = GatewayConfig(port=0, keys_file=str(tmp_path / "keys.json"))
    repertoire = ModelRegistry.of([arithmetic.quadruple])
    backend = FakeBackend(repertoire, lambda workflow, inputs: [list[Array](inputs)])
    with contextlib.closing(InferenceService(backend, config)) as service:
        metrics = Metrics(service)
        async with (
            HttpServer(Gateway(service, metrics=metrics), config, None) as server,
            metrics_server(metrics, TelemetryConfig(), config) as beside,
            httpx.AsyncClient(trust_env=False) as client,
        ):
            answers = [await client.get(f"{server.url}/metrics", headers={"X-API-Key": key}) for key in (operator, user, "wrong")]
            assert [answer.status_code for answer in answers] == [200, 403, 401]
            assert "may not see the metrics of all tenants" in answers[1].text
            assert (await client.get(f"{beside.url}/metrics")).status_code == 200
            assert (await client.head(f"{beside.url}/metrics")).status_code == 200
            assert (await client.get(f"{beside.url}/status")).status_code == 404


async def test_without_metrics_there_is_no_route() -> None:
    config = GatewayConfig(port=0)
    repertoire = ModelRegistry.of([arithmetic.quadruple])
    backend = FakeBackend(repertoire, lambda workflow, inputs: [list[Array](inputs)])
    with contextlib.closing(InferenceService(backend, config)) as service:
        async with HttpServer(Gateway(service), config, None) as server, httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{server.url}/metrics")).status_code == 404


# Tenants


def test_refusals_count_by_tenant_and_reason() -> None:
    admission = Admission(max_requests=10, max_bytes=1000)
    small = Tenant(name="small", max_requests=1)
    with admission.admit(small), pytest.raises(TenantLimitError):
        admission.admit(small)
    slow = Tenant(name="slow", max_requests_per_s=1)
    admission.admit(slow).release()
    with pytest.raises(TenantLimitError):
        admission.admit(slow)
    readings = Readings()
    admission.measure(readings)
    assert readings.of(catalogue.REFUSED) == {("small", "tenant_requests"): 1, ("slow", "tenant_rate"): 1}
    assert readings.of(catalogue.ADMITTED) == {("small",): 1, ("slow",): 1}


def test_many_tenants_make_a_bounded_number_of_series() -> None:
    admission = Admission(max_requests=10_000, max_bytes=2**30)
    for number in range(3 * MAX_TENANTS):
        admission.admit(Tenant(name=f"t{number}"), 10)
    readings = Readings()
    admission.measure(readings)
    for metric in (catalogue.ADMITTED, catalogue.TENANT_REQUESTS, catalogue.TENANT_BYTES):
        series = readings.of(metric)
        assert len(series) == MAX_TENANTS + 1
        assert sum(value for value in series.values() if isinstance(value, int)) == 3 * MAX_TENANTS * (
            10 if metric is catalogue.TENANT_BYTES else 1
        )
        assert (OTHER,) in series


async def test_a_process_that_is_still_starting_does_not_lose_what_the_one_before_it_had_counted() -> None:
    others = Others({}, {}, counted(7))
    repertoire = ModelRegistry.of([arithmetic.quadruple])
    backend = FakeBackend(repertoire, lambda workflow, inputs: [list[Array](inputs)])
    with contextlib.closing(InferenceService(backend, GatewayConfig(port=0), others)):
        assert others.counts()["metrics"] == counted(7)
