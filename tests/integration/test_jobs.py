"""Durable jobs over HTTP, on both stores: everything of a server but Ray, with a real SQLite file and a real Redis."""

import asyncio
import secrets
import sqlite3
import stat
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from structlog.testing import capture_logs

from dyorc.config import GatewayConfig, JobsConfig
from dyorc.errors import CapacityError, DefinitionError, DyOrcError, ReplicaLostError, StoreError
from dyorc.gateway.admission import Admission, Ticket
from dyorc.gateway.catalog import Model
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import ANONYMOUS, Tenant
from dyorc.protocol.jobs import JobState
from dyorc.store.base import RECORD_BYTES, Body, JobStore, Lane, NewJob, new_id
from dyorc.store.opening import store_of
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore, default_path
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running
from tests.redis_server import RedisServer
from tests.workflows import arithmetic, effects, faulty, slow

X = np.array([1, 2, 3, 4], np.float32)
FAST = JobsConfig(lease_s=0.3)
SLOW = JobsConfig(lease_s=600)
"""Nothing that a test sees comes from a lease."""

MakeStore = Callable[[], JobStore]


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Makes one and the same store, as often as it is called."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "jobs.sqlite")
    server: RedisServer = request.getfixturevalue("redis_server")
    prefix = f"{{{secrets.token_hex(4)}}}:"
    return lambda: RedisStore(server.url, prefix)


@pytest.fixture
def file_store(tmp_path: Path) -> MakeStore:
    return lambda: SqliteStore(tmp_path / "jobs.sqlite")


@asynccontextmanager
async def serving(target: Any, store: JobStore, jobs: JobsConfig = FAST, num_replicas: int = 1) -> AsyncGenerator[Stack]:
    gateway = GatewayConfig(port=0, drain_timeout_s=1)
    async with running([target], store=store, jobs=jobs, num_replicas=num_replicas, gateway=gateway) as stack:
        yield stack


async def submit(
    client: httpx.AsyncClient, model: str, x: oip.Array = X, headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    body = oip.json_body({"x": x}, model_name=model, **fields)
    return await client.post("/v1/jobs", content=body.content, headers={**body.headers, **(headers or {})})


async def submitted(client: httpx.AsyncClient, model: str, x: oip.Array = X, **fields: Any) -> str:
    """Submits, and gives the id."""
    answer = await submit(client, model, x, **fields)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


async def ended(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    """The job, when it has ended."""
    while (job := (await client.get(f"/v1/jobs/{job_id}", params={"wait_s": "20"})).json())["finished_s"] is None:
        pass
    return job


async def started(folder: Path, number: int = 1) -> None:
    await wait_until_async((folder / f"started-{number}").exists, "the program runs")


async def test_a_job_gives_what_infer_gives(make_store: MakeStore) -> None:
    async with serving(arithmetic.quadruple, make_store()) as stack:
        answer = await submit(stack.client, "quadruple", id="mine")
        assert answer.status_code == 202
        job = answer.json()
        assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
        assert (job["state"], job["num_attempts"], job["error"], job["expires_s"]) == ("queued", 0, None, None)
        job = await ended(stack.client, job["id"])
        assert (job["state"], job["num_attempts"], job["model_name"]) == ("succeeded", 1, "quadruple")
        assert job["created_s"] <= job["started_s"] <= job["finished_s"] < job["expires_s"]
        result = await stack.client.get(f"/v1/jobs/{job['id']}/result")
        body = oip.json_body({"x": X}, id="mine")
        plain = await stack.client.post("/v2/models/quadruple/infer", content=body.content, headers=body.headers)
        assert (result.status_code, result.content) == (200, plain.content)
        assert result.headers["content-type"] == plain.headers["content-type"]


async def test_raw_tensors_go_in_and_come_out(make_store: MakeStore) -> None:
    fields = {"model_name": "quadruple", "parameters": {"binary_data_output": True}}
    async with serving(arithmetic.quadruple, make_store()) as stack:
        body = oip.binary_body({"x": X}, **fields)
        job_id = (await stack.client.post("/v1/jobs", content=body.content, headers=body.headers)).json()["id"]
        await ended(stack.client, job_id)
        result = await stack.client.get(f"/v1/jobs/{job_id}/result")
        assert result.headers["content-type"] == "application/octet-stream"
        np.testing.assert_array_equal(oip.read(result).outputs["output"], X * 4)


async def test_a_repeated_submission_is_the_same_job_and_another_body_a_conflict(make_store: MakeStore) -> None:
    key = {"Idempotency-Key": "k"}
    async with serving(arithmetic.quadruple, make_store(), num_replicas=0) as stack:
        first, second = [await submit(stack.client, "quadruple", headers=key) for _ in range(2)]
        assert (first.status_code, second.status_code) == (202, 200)
        assert first.json()["id"] == second.json()["id"]
        other = await submit(stack.client, "quadruple", X + 1, headers=key)
        assert (other.status_code, other.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model_name": "quadrupel"}, 404, "unknown_model"),
        ({"model_name": "quadruple", "model_version": "7"}, 404, "unknown_model"),
        ({"model_name": 7}, 400, "invalid_input"),
        ({}, 400, "invalid_input"),
        ({"model_name": "quadruple", "parameters": {"nonsense": 1}}, 400, "invalid_input"),
        ({"model_name": "quadruple", "ttl": 60}, 400, "invalid_input"),
        ({"model_name": "quadruple", "ttl_s": 0}, 400, "invalid_input"),
        ({"model_name": "quadruple", "ttl_s": 1e9}, 400, "invalid_input"),
        ({"model_name": "quadruple", "webhook": "http://169.254.169.254/"}, 400, "invalid_input"),
    ],
)
async def test_a_bad_submission_is_refused_at_once(file_store: MakeStore, fields: dict[str, Any], status: int, code: str) -> None:
    async with serving(arithmetic.quadruple, file_store(), num_replicas=0) as stack:
        body = oip.json_body({"x": X}, **fields)
        answer = await stack.client.post("/v1/jobs", content=body.content, headers=body.headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert (await stack.client.get("/v1/jobs")).json() == {"jobs": [], "next": None}


async def test_bodies_that_are_no_request_are_refused(file_store: MakeStore) -> None:
    async with serving(arithmetic.quadruple, file_store(), num_replicas=0) as stack:
        wrong = oip.json_body({"x": np.ones(3, np.float32)}, model_name="quadruple")
        good = oip.json_body({"x": X}, model_name="quadruple")
        for content, headers in [
            (b"", {}), (b"{", {}), (b"[" * 100_000, {}), (b"\xff\xfe", {}), (wrong.content, {}),
            (wrong.content, {"Inference-Header-Content-Length": "x"}), (b"{}", {"Inference-Header-Content-Length": "9" * 18}),
            (b"{}", {"Content-Encoding": "br"}), (b"{}", {"Idempotency-Key": "k" * 300}),
            (good.content, {"Idempotency-Key": ""}),
        ]:  # fmt: skip
            answer = await stack.client.post("/v1/jobs", content=content, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input"), (content[:20], answer.text)


async def test_an_unknown_field_of_a_job_is_named_with_those_that_there_are(file_store: MakeStore) -> None:
    async with serving(arithmetic.quadruple, file_store(), num_replicas=0) as stack:
        text = (await submit(stack.client, "quadruple", ttl=60)).json()["error"]
        assert "`ttl`" in text
        assert "'ttl_s'" in text
        every = {"id": "7", "parameters": {}, "outputs": [], "model_version": "1", "ttl_s": 60}
        assert (await submit(stack.client, "quadruple", **every)).status_code == 202


async def test_too_large_bodies_are_refused_with_and_without_a_length(file_store: MakeStore) -> None:
    async def parts() -> Any:
        for _ in range(10):
            yield b" " * 1000

    gateway = GatewayConfig(port=0, drain_timeout_s=1, max_request_bytes=5000)
    async with running([arithmetic.quadruple], store=file_store(), num_replicas=0, gateway=gateway) as stack:
        for content in (b" " * 10_000, b" " * 10_000_000, parts()):
            answer = await stack.client.post("/v1/jobs", content=content)
            assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")


async def test_a_tenant_with_too_many_waiting_jobs_gets_429(file_store: MakeStore) -> None:
    jobs = FAST.model_copy(update={"max_running": 1, "max_queued": 1})
    async with serving(arithmetic.quadruple, file_store(), jobs, num_replicas=0) as stack:
        await submitted(stack.client, "quadruple")
        await wait_until_async(lambda: stack.orchestrator.num_requests == 1, "one runs")
        await submitted(stack.client, "quadruple")
        answer = await submit(stack.client, "quadruple")
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (429, "tenant_limit", True)
        assert "retry-after" in answer.headers


async def test_what_jobs_take_is_limited_for_each_tenant_and_shown(make_store: MakeStore) -> None:
    jobs = FAST.model_copy(update={"max_bytes_per_tenant": 4000})
    async with serving(arithmetic.quadruple, make_store(), jobs, num_replicas=0) as stack:
        for _ in range(4):
            answer = await submit(stack.client, "quadruple")
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (429, "tenant_limit", True)
        assert "of the 4000" in answer.json()["error"]
        jobs_status = (await stack.client.get("/status")).json()["jobs"]
        assert jobs_status["max_bytes_per_tenant"] == 4000


async def test_slow_jobs_for_one_program_do_not_hold_up_a_job_for_another(make_store: MakeStore, tmp_path: Path) -> None:
    jobs = SLOW.model_copy(update={"max_running": 8})
    targets = [slow.gated, arithmetic.quadruple]
    gateway = GatewayConfig(port=0, drain_timeout_s=1)
    async with running(targets, store=make_store(), jobs=jobs, gateway=gateway) as stack:
        for _ in range(30):
            await submitted(stack.client, "gated", parameters={"folder": str(tmp_path)})
        await wait_until_async(lambda: stack.orchestrator.num_requests == 6, "as many run as may")
        job_id = await submitted(stack.client, "quadruple")
        job = (await stack.client.get(f"/v1/jobs/{job_id}", params={"wait_s": "50"})).json()
        (tmp_path / "open").touch()
        assert job["state"] == "succeeded"
        status = (await stack.client.get("/status")).json()["jobs"]
        assert status["max_running"] == 8


async def test_a_result_that_the_store_has_no_room_for_fails_its_job(make_store: MakeStore) -> None:
    body = oip.json_body({"x": X}, model_name="quadruple", parameters={"explain": True})
    jobs = FAST.model_copy(update={"max_bytes_per_tenant": RECORD_BYTES + len(body.content)})
    async with serving(arithmetic.quadruple, make_store(), jobs) as stack:
        job_id = await submitted(stack.client, "quadruple", parameters={"explain": True})
        job = await ended(stack.client, job_id)
        assert (job["state"], job["error"]["code"], job["num_attempts"]) == ("failed", "payload_too_large", 1)
        assert f"may keep {jobs.max_bytes_per_tenant}" in job["error"]["error"]
        assert (await stack.client.get(f"/v1/jobs/{job_id}/result")).status_code == 413


async def test_streams_and_client_memory_are_not_for_jobs(file_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(arithmetic.quadruple, file_store(), num_replicas=0) as stack:
        tensor = {"name": "x", "shape": [4], "datatype": "FP32", "parameters": {"shared_memory_region": "r"}}
        request = {"model_name": "quadruple", "inputs": [tensor]}
        answer = await stack.client.post("/v1/jobs", json=request)
        assert (answer.status_code, answer.json()["code"]) == (501, "unsupported"), answer.text
        monkeypatch.setattr(Model, "is_streaming", True)
        answer = await submit(stack.client, "quadruple")
        assert (answer.status_code, answer.json()["code"]) == (501, "unsupported")


async def test_a_failed_job_answers_as_infer_would_have(make_store: MakeStore) -> None:
    async with serving(faulty.pick, make_store()) as stack:
        job = await ended(stack.client, await submitted(stack.client, "pick", -X))
        assert job["state"] == "failed"
        assert job["error"]["code"] == "program"
        result = await stack.client.get(f"/v1/jobs/{job['id']}/result")
        assert (result.status_code, result.json()) == (500, job["error"])


async def test_results_of_unfinished_cancelled_and_unknown_jobs(make_store: MakeStore) -> None:
    async with serving(arithmetic.quadruple, make_store(), num_replicas=0) as stack:
        job_id = await submitted(stack.client, "quadruple")
        result = await stack.client.get(f"/v1/jobs/{job_id}/result")
        error = result.json()
        assert (result.status_code, error["code"], error["retryable"]) == (409, "job_not_ended", True)
        assert int(result.headers["retry-after"]) >= 1
        cancelled = await stack.client.post(f"/v1/jobs/{job_id}/cancel")
        assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
        result = await stack.client.get(f"/v1/jobs/{job_id}/result")
        assert (result.status_code, result.json()["code"]) == (499, "cancelled")
        for verb, path in [("GET", ""), ("GET", "/result"), ("POST", "/cancel"), ("DELETE", "")]:
            answer = await stack.client.request(verb, f"/v1/jobs/nobody{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown_job")


async def test_cancelling_a_running_job_cancels_its_request(make_store: MakeStore, tmp_path: Path) -> None:
    async with serving(slow.gated, make_store(), SLOW) as stack:
        job_id = await submitted(stack.client, "gated", parameters={"folder": str(tmp_path)})
        await started(tmp_path)
        waiting = asyncio.create_task(ended(stack.client, job_id))
        await wait_until_async(lambda: stack.orchestrator.num_requests == 1, "the request is in flight")
        await stack.client.post(f"/v1/jobs/{job_id}/cancel")
        assert (await waiting)["state"] == "cancelled"
        await wait_until_async(lambda: stack.orchestrator.num_requests == 0, "the request is cancelled")
        (tmp_path / "open").touch()


async def test_deleting_a_running_job_cancels_its_request(make_store: MakeStore, tmp_path: Path) -> None:
    async with serving(slow.gated, make_store(), SLOW) as stack:
        job_id = await submitted(stack.client, "gated", parameters={"folder": str(tmp_path)})
        await started(tmp_path)
        answer = await stack.client.delete(f"/v1/jobs/{job_id}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert (await stack.client.get(f"/v1/jobs/{job_id}")).status_code == 404
        await wait_until_async(lambda: stack.orchestrator.num_requests == 0, "the request is cancelled")
        (tmp_path / "open").touch()


async def test_a_job_that_another_server_has_cancelled_is_dropped(make_store: MakeStore, tmp_path: Path) -> None:
    async with serving(slow.gated, make_store()) as stack:
        job_id = await submitted(stack.client, "gated", parameters={"folder": str(tmp_path)})
        await started(tmp_path)
        async with make_store() as other:
            await other.cancel("", job_id)
        await wait_until_async(lambda: stack.orchestrator.num_requests == 0, "the request is cancelled")
        assert (await ended(stack.client, job_id))["state"] == "cancelled"
        (tmp_path / "open").touch()


async def test_lists_go_on_where_the_page_before_ended(make_store: MakeStore) -> None:
    async with serving(arithmetic.quadruple, make_store(), num_replicas=0) as stack:
        ids = [await submitted(stack.client, "quadruple") for _ in range(5)]
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page = (await stack.client.get("/v1/jobs", params={"limit": "2", "after": after})).json()
            found += [job["id"] for job in page["jobs"]]
            after = page["next"]
        assert found == ids[::-1]
        assert (await stack.client.get("/v1/jobs", params={"state": "failed"})).json() == {"jobs": [], "next": None}
        for query in ({"state": "lost"}, {"limit": "0"}, {"limit": "x"}, {"limit": "-1"}, {"limit": "1.5"}):
            answer = await stack.client.get("/v1/jobs", params=query)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input"), query
            assert "limit" not in query or "a whole number from 1 to 1000" in answer.json()["error"]


async def test_tenants_see_only_their_own_jobs(file_store: MakeStore, tmp_path: Path) -> None:
    (mine, my_record), (theirs, their_record) = new_key(), new_key()
    write_tenants(tmp_path / "keys.toml", [TenantRecord(name="a", keys=[my_record]), TenantRecord(name="b", keys=[their_record])])
    gateway = GatewayConfig(port=0, drain_timeout_s=1, keys_file=str(tmp_path / "keys.toml"))
    async with running([arithmetic.quadruple], store=file_store(), jobs=FAST, gateway=gateway) as stack:
        job_id = (await submit(stack.client, "quadruple", headers={"x-api-key": mine})).json()["id"]
        for verb, path in [("GET", ""), ("GET", "/result"), ("POST", "/cancel"), ("DELETE", "")]:
            answer = await stack.client.request(verb, f"/v1/jobs/{job_id}{path}", headers={"x-api-key": theirs})
            assert answer.status_code == 404
        found = [(await stack.client.get("/v1/jobs", headers={"x-api-key": key})).json()["jobs"] for key in (mine, theirs)]
        assert [[job["id"] for job in jobs] for jobs in found] == [[job_id], []]


@asynccontextmanager
async def jobs_beside(stack: Stack, store: JobStore, drain_timeout_s: float = 10) -> AsyncGenerator[Jobs]:
    """Jobs that stop while the replicas go on."""
    service = InferenceService(stack.catalog, stack.orchestrator, GatewayConfig(drain_timeout_s=drain_timeout_s))
    with closing(service):
        async with Jobs(service, store, SLOW) as jobs:
            yield jobs


def body_for(model: str, **parameters: Any) -> Body:
    return Body(oip.json_body({"x": X}, model_name=model, parameters=parameters).content)


async def test_a_server_that_stops_gives_its_jobs_back_at_once(make_store: MakeStore, tmp_path: Path) -> None:
    async with running([slow.gated]) as stack:
        async with jobs_beside(stack, make_store()) as jobs:
            job, _ = await jobs.submit(ANONYMOUS, body_for("gated", folder=str(tmp_path)))
            await started(tmp_path)
        (tmp_path / "open").touch()
        async with jobs_beside(stack, make_store()) as jobs:
            job = await jobs.get(ANONYMOUS, job.id, wait_s=20)
            assert (job.state, job.num_attempts) == (JobState.SUCCEEDED, 1)


@pytest.mark.parametrize(("drain_timeout_s", "code"), [(20, None), (0.05, "effect_lost")])
async def test_a_stopping_server_waits_for_effects_as_long_as_for_requests(
    make_store: MakeStore, tmp_path: Path, drain_timeout_s: float, code: str | None
) -> None:
    async with running([effects.once]) as stack:
        async with jobs_beside(stack, make_store(), drain_timeout_s) as jobs:
            job, _ = await jobs.submit(ANONYMOUS, body_for("once", folder=str(tmp_path)))
            await wait_until_async((tmp_path / "runs").exists, "the program runs")
            if code is None:
                asyncio.get_running_loop().call_later(0.2, (tmp_path / "open").touch)
        (tmp_path / "open").touch()
        async with make_store() as store:
            error = (await store.get("", job.id)).error
        assert (None if error is None else error.code) == code


async def abandoned(make_store: MakeStore, model: str, times: int, **parameters: Any) -> str:
    """A job that servers have claimed who died, one after the other."""
    content = oip.json_body({"x": X}, parameters=parameters).content
    new = NewJob(id=new_id(), tenant="", model_name=model, model_version="1", body=Body(content), ttl_s=60)
    async with make_store() as store:
        await store.submit(new)
        for _ in range(times):
            while not await store.claim([Lane("", model)], "dead", FAST.lease_s):
                await store.wait_for_work(FAST.lease_s)
    return new.id


@pytest.mark.parametrize(("deaths", "state", "num_attempts"), [(1, "succeeded", 2), (2, "succeeded", 3), (3, "failed", 3)])
async def test_a_job_of_a_dead_server_is_run_again_but_not_for_ever(
    make_store: MakeStore, deaths: int, state: str, num_attempts: int
) -> None:
    job_id = await abandoned(make_store, "quadruple", deaths)
    async with serving(arithmetic.quadruple, make_store()) as stack:
        job = await ended(stack.client, job_id)
        assert (job["state"], job["num_attempts"]) == (state, num_attempts)
        assert state == "succeeded" or job["error"]["code"] == "execution"


async def test_an_effect_that_may_have_happened_is_not_repeated(make_store: MakeStore, tmp_path: Path) -> None:
    job_id = await abandoned(make_store, "once", 1, folder=str(tmp_path))
    async with serving(effects.once, make_store()) as stack:
        job = await ended(stack.client, job_id)
        assert (job["state"], job["error"]["code"], job["num_attempts"]) == ("failed", "effect_lost", 1)
    assert not (tmp_path / "runs").exists()


def failing_first(monkeypatch: pytest.MonkeyPatch, *errors: DyOrcError) -> None:
    """The first requests fail with these."""
    left, infer = list(errors), InferenceService.infer

    async def failing(self: InferenceService, *args: Any, **kwargs: Any) -> Any:
        if left:
            raise left.pop(0)
        return await infer(self, *args, **kwargs)

    monkeypatch.setattr(InferenceService, "infer", failing)


async def test_what_may_pass_is_tried_again_and_nothing_else(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_first(monkeypatch, ReplicaLostError("lost"), CapacityError("full", 0.01))
    async with serving(arithmetic.quadruple, make_store()) as stack:
        job = await ended(stack.client, await submitted(stack.client, "quadruple"))
        assert (job["state"], job["num_attempts"]) == ("succeeded", 3)
        failing_first(monkeypatch, *(ReplicaLostError("lost") for _ in range(3)))
        job = await ended(stack.client, await submitted(stack.client, "quadruple"))
        assert (job["state"], job["num_attempts"], job["error"]["code"]) == ("failed", 3, "replica_lost")
        assert (await stack.client.get(f"/v1/jobs/{job['id']}/result")).status_code == 503
        failing_first(monkeypatch, DyOrcError("for good"))
        job = await ended(stack.client, await submitted(stack.client, "quadruple"))
        assert (job["state"], job["num_attempts"]) == ("failed", 1)


async def test_a_job_that_is_not_admitted_waits_and_it_counts_as_no_attempt(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await abandoned(make_store, "quadruple", 0)
    refused: list[str] = []
    admit = Admission.admit

    def refusing(self: Admission, tenant: Tenant, num_bytes: int = 0) -> Ticket:
        if not refused:
            refused.append(tenant.name)
            raise CapacityError("full", 0.01)
        return admit(self, tenant, num_bytes)

    monkeypatch.setattr(Admission, "admit", refusing)
    async with serving(arithmetic.quadruple, make_store()) as stack:
        job = await ended(stack.client, job_id)
        assert (job["state"], job["num_attempts"], refused) == ("succeeded", 1, [""])


async def test_a_jobs_timeout_counts_from_its_start(file_store: MakeStore, tmp_path: Path) -> None:
    async with serving(slow.gated, file_store(), FAST.model_copy(update={"max_running": 1})) as stack:
        first = await submitted(stack.client, "gated", parameters={"folder": str(tmp_path)})
        await started(tmp_path)
        parameters = {"folder": str(tmp_path), "timeout": 300_000, "priority": 1}
        second = await submitted(stack.client, "gated", X + 1, parameters=parameters)
        assert (await stack.client.get(f"/v1/jobs/{second}", params={"wait_s": "0.5"})).json()["state"] == "queued"
        await stack.client.post(f"/v1/jobs/{first}/cancel")
        job = await ended(stack.client, second)
        assert (job["state"], job["error"]["code"]) == ("failed", "deadline")
        (tmp_path / "open").touch()


async def test_no_more_jobs_run_than_there_is_room_for(make_store: MakeStore, tmp_path: Path) -> None:
    async with serving(slow.gated, make_store(), FAST.model_copy(update={"max_running": 3})) as stack:
        parameters = {"folder": str(tmp_path)}
        ids = [await submitted(stack.client, "gated", X + at, parameters=parameters) for at in range(4)]
        await wait_until_async(lambda: stack.orchestrator.num_requests == 2, "two of them run, and the last slot is for others")
        running_now = (await stack.client.get("/v1/jobs", params={"state": "running"})).json()["jobs"]
        assert [job["id"] for job in running_now] == ids[1::-1]
        (tmp_path / "open").touch()
        for job_id in ids:
            assert (await ended(stack.client, job_id))["state"] == "succeeded"


async def test_a_store_that_cannot_be_opened_leaves_everything_else_running(tmp_path: Path) -> None:
    """The log says what is wrong with it; clients need not know where it is."""
    (tmp_path / "file").write_text("")
    store = SqliteStore(tmp_path / "file" / "jobs.sqlite")
    with capture_logs() as logs:
        async with serving(arithmetic.quadruple, store) as stack:
            answer = await submit(stack.client, "quadruple")
            assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, "capacity", True)
            assert answer.json()["error"] == "there are no jobs now: the job store cannot be used now"
            (logged,) = [one["error"] for one in logs if one["event"] == "no_jobs"]
            assert f"{tmp_path}/file/jobs.sqlite cannot be opened" in logged
            assert (await stack.client.get("/v1/jobs")).status_code == 503
            body = oip.json_body({"x": X})
            plain = await stack.client.post("/v2/models/quadruple/infer", content=body.content, headers=body.headers)
            assert plain.status_code == 200


async def test_jobs_survive_the_death_of_redis(redis_server: RedisServer) -> None:
    prefix = f"{{{secrets.token_hex(4)}}}:"
    async with serving(arithmetic.quadruple, RedisStore(redis_server.url, prefix), num_replicas=0) as stack:
        job_id = await submitted(stack.client, "quadruple")
        redis_server.kill()
        answer = await submit(stack.client, "quadruple")
        assert answer.status_code == 503
        assert answer.json() == {"error": "the job store cannot be used now", "code": "store", "retryable": True}
        redis_server.start()
        await stack.start_worker(arithmetic.double)
        assert (await ended(stack.client, job_id))["state"] == "succeeded"


async def test_a_result_that_redis_did_not_take_is_written_when_it_is_back(redis_server: RedisServer, tmp_path: Path) -> None:
    prefix = f"{{{secrets.token_hex(4)}}}:"
    async with serving(slow.gated, RedisStore(redis_server.url, prefix), SLOW) as stack:
        job_id = await submitted(stack.client, "gated", parameters={"folder": str(tmp_path)})
        await started(tmp_path)
        redis_server.kill()
        (tmp_path / "open").touch()
        await wait_until_async(lambda: stack.orchestrator.num_requests == 0, "the request has been answered")
        assert (await stack.client.get(f"/v1/jobs/{job_id}")).status_code == 503
        redis_server.start()
        job = await ended(stack.client, job_id)
        assert (job["state"], job["num_attempts"]) == ("succeeded", 1)


def test_files_are_for_their_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "dyorc" / "jobs.sqlite"

    async def open_it() -> list[int]:
        async with SqliteStore(default_path()):
            files = sorted((tmp_path / "dyorc").iterdir())
            assert len(files) == 3, "the file, its log and the log's index"
            return [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "dyorc", *files)]

    assert asyncio.run(open_it()) == [0o700, 0o600, 0o600, 0o600]
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert default_path() == Path.home() / ".local" / "state" / "dyorc" / "jobs.sqlite"


async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError) as caught:
        async with SqliteStore(path):
            pass
    assert "version 99, expected at most 3" in caught.value.detail


async def test_a_stores_password_is_not_shown() -> None:
    store = store_of("redis://user:geheim@localhost:1/0?password=geheim")
    async with store:
        with pytest.raises(StoreError) as caught:
            await store.get("t", "id")
    assert "redis://localhost:1/0" in caught.value.detail
    assert "geheim" not in caught.value.detail
    with pytest.raises(DefinitionError) as caught_setting:
        store_of("mysql://user:geheim@localhost")
    assert "geheim" not in str(caught_setting.value)
