"""How many jobs may wait and run, and how many bytes they may take."""

from pathlib import Path

import pytest

from dyorc.config import GatewayConfig
from dyorc.store.base import RECORD_BYTES
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.jobs.served_jobs import FAST, SLOW, X, ended, serving, submit, submitted
from tests.integration.jobs.stored_jobs import MakeStore
from tests.integration.stack import running
from tests.workflows import arithmetic, slow

pytestmark = pytest.mark.together


async def test_a_tenant_with_too_many_waiting_jobs_gets_429(file_store: MakeStore) -> None:
    jobs = FAST.model_copy(update={"max_running": 1, "max_queued": 1})
    async with serving(arithmetic.quadruple, file_store(), jobs, num_replicas=0) as stack:
        await submitted(stack.client, "quadruple")
        await wait_until_async(lambda: stack.orchestrator.num_requests == 1, "one runs")
        await submitted(stack.client, "quadruple")
        answer = await submit(stack.client, "quadruple")
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (429, "tenant_limit", True)
        assert "retry-after" in answer.headers


async def test_the_bytes_of_each_tenants_jobs_are_limited_and_the_limit_is_shown(make_store: MakeStore) -> None:
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
        await wait_until_async(lambda: stack.orchestrator.num_requests == 6, "as many run as may run")
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


async def test_no_more_jobs_run_than_configured(make_store: MakeStore, tmp_path: Path) -> None:
    async with serving(slow.gated, make_store(), FAST.model_copy(update={"max_running": 3})) as stack:
        parameters = {"folder": str(tmp_path)}
        ids = [await submitted(stack.client, "gated", X + at, parameters=parameters) for at in range(4)]
        await wait_until_async(lambda: stack.orchestrator.num_requests == 2, "two of them run, and the last slot is for others")
        running_now = (await stack.client.get("/v1/jobs", params={"state": "running"})).json()["jobs"]
        assert [job["id"] for job in running_now] == ids[1::-1]
        (tmp_path / "open").touch()
        for job_id in ids:
            assert (await ended(stack.client, job_id))["state"] == "succeeded"
