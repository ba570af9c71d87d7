"""What happens to jobs, and to everything else, while their store is gone."""

import secrets
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dyorc.errors import StoreError
from dyorc.store.base import NO_QUOTA, Claim, Outcome, Quota
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.jobs.served_jobs import SLOW, X, ended, serving, started, submit, submitted
from tests.redis_server import RedisServer
from tests.workflows import arithmetic, slow

pytestmark = pytest.mark.together


async def test_a_store_that_cannot_be_opened_leaves_everything_else_running(tmp_path: Path) -> None:
    """The log says what is wrong with the store; clients need not know where it is."""
    (tmp_path / "file").write_text("")
    store = SqliteStore(tmp_path / "file" / "jobs.sqlite")
    with capture_logs() as logs:
        async with serving(arithmetic.quadruple, store) as stack:
            answer = await submit(stack.client, "quadruple")
            assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, "capacity", True)
            assert answer.json()["error"] == "jobs are not available now: the job store cannot be used now"
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
        assert oip.error_text(answer) == "the job store cannot be used now"
        assert (answer.json()["code"], answer.json()["retryable"]) == ("store", True)
        redis_server.start()
        await stack.start_worker(arithmetic.double)
        assert (await ended(stack.client, job_id))["state"] == "succeeded"


async def test_a_result_that_redis_could_not_take_is_written_when_it_is_back(redis_server: RedisServer, tmp_path: Path) -> None:
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


class Full(SqliteStore):
    """A store on a disk that is full when jobs end."""

    num_refusals_left = 20

    async def finish(self, claim: Claim, outcome: Outcome, quota: Quota = NO_QUOTA) -> bool:
        """Raises, until there is room."""
        self.num_refusals_left -= 1
        if self.num_refusals_left >= 0:
            raise StoreError("database or disk is full")
        return await super().finish(claim, outcome, quota)


async def test_results_that_cannot_be_written_are_logged_once_and_then_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dyorc.gateway.jobs.runner._RETRY_S", 0.005)
    with capture_logs() as logs:
        async with serving(arithmetic.quadruple, Full(tmp_path / "jobs.sqlite"), SLOW) as stack:
            ids = [await submitted(stack.client, "quadruple") for _ in range(3)]
            for job_id in ids:
                assert (await ended(stack.client, job_id))["state"] == "succeeded"
    lines = [(one["event"], one.get("num_more")) for one in logs if one["event"].startswith("job")]
    assert lines == [("job_not_written", None), ("jobs_written_again", 19)]
