"""Cancelling or deleting a running job ends its request, and so does its deadline."""

import asyncio
from pathlib import Path

import pytest

from tests.deadlines import wait_until_async
from tests.integration.jobs.served_jobs import FAST, SLOW, X, ended, serving, started, submitted
from tests.integration.jobs.stored_jobs import MakeStore
from tests.workflows import slow

pytestmark = pytest.mark.together


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
