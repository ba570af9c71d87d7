"""Jobs run again when their server or a replica is lost, but effects are not repeated."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from dyorc.config import GatewayConfig
from dyorc.errors import CapacityError, DyOrcError, ReplicaLostError, StoreError
from dyorc.gateway.admission import Admission, Ticket
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import ANONYMOUS, Tenant
from dyorc.protocol.job_records import JobState
from dyorc.store.base import Body, Claim, JobStore, Lane, NewJob, new_id
from dyorc.store.sqlite import SqliteStore
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.jobs.served_jobs import SLOW, X, ended, serving, started, submitted
from tests.integration.jobs.stored_jobs import MakeStore
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, effects, slow

pytestmark = pytest.mark.together

_DEAD_LEASE_S = 0.1


@asynccontextmanager
async def jobs_beside(stack: Stack, store: JobStore, drain_timeout_s: float = 10) -> AsyncGenerator[Jobs]:
    """Serves jobs, and stops while the replicas go on."""
    service = InferenceService(stack.orchestrator, GatewayConfig(drain_timeout_s=drain_timeout_s))
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


async def test_a_server_whose_clock_is_set_forward_goes_on_with_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that slept for a day."""
    real, set_by_s = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + set_by_s[0])
    store = SqliteStore(tmp_path / "jobs.sqlite", lambda: time.time())
    async with running([effects.once], num_replicas=2) as stack, jobs_beside(stack, store) as jobs:
        job, _ = await jobs.submit(ANONYMOUS, body_for("once", folder=str(tmp_path)))
        await wait_until_async((tmp_path / "runs").exists, "the program runs")
        set_by_s[0] = 86_400.0
        (tmp_path / "other").mkdir()
        other, _ = await jobs.submit(ANONYMOUS, body_for("once", folder=str(tmp_path / "other")))
        await wait_until_async((tmp_path / "other" / "runs").exists, "jobs have been claimed since")
        for folder in (tmp_path, tmp_path / "other"):
            (folder / "open").touch()
        ends = [await jobs.get(ANONYMOUS, each.id, wait_s=20) for each in (job, other)]
        assert [(end.state, end.error) for end in ends] == 2 * [(JobState.SUCCEEDED, None)]


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


class Unwritable(SqliteStore):
    """A store that takes no end of a job: its disk is full."""

    async def release(self, claim: Claim, delay_s: float, *, is_counted: bool) -> bool:
        """Raises."""
        raise StoreError("database or disk is full")


async def test_a_server_that_stops_waits_once_for_a_store_that_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that drains again would wait for an hour."""
    monkeypatch.setattr("dyorc.gateway.jobs.runner._WRITE_S", 0.05)
    async with running([slow.gated]) as stack:
        async with jobs_beside(stack, Unwritable(tmp_path / "jobs.sqlite"), drain_timeout_s=3600) as jobs:
            job, _ = await jobs.submit(ANONYMOUS, body_for("gated", folder=str(tmp_path)))
            await started(tmp_path)
            await jobs.drain(0.05)
        (tmp_path / "open").touch()
        async with SqliteStore(tmp_path / "jobs.sqlite") as store:
            assert (await store.get("", job.id)).state is JobState.RUNNING, "it runs again once its claim is over"


async def test_a_job_whose_effect_has_not_begun_is_given_back_by_a_server_that_stops(
    make_store: MakeStore, tmp_path: Path
) -> None:
    async with running([effects.once_opened]) as stack:
        async with jobs_beside(stack, make_store(), drain_timeout_s=0.05) as jobs:
            job, _ = await jobs.submit(ANONYMOUS, body_for("once_opened", folder=str(tmp_path)))
            await started(tmp_path)
        assert not (tmp_path / "runs").exists()
        async with make_store() as store:
            job = await store.get("", job.id)
            assert (job.state, job.error, job.num_attempts) == (JobState.QUEUED, None, 0)
        (tmp_path / "open").touch()
        async with jobs_beside(stack, make_store()) as jobs:
            job = await jobs.get(ANONYMOUS, job.id, wait_s=20)
            assert (job.state, job.num_attempts) == (JobState.SUCCEEDED, 1)
    assert (tmp_path / "runs").read_text() == "2\n", "it happened once, after the gated program had added 1"


async def abandoned(make_store: MakeStore, model: str, times: int, **parameters: Any) -> str:
    """Makes a job that was claimed several times, each time by a server that died."""
    content = oip.json_body({"x": X}, parameters=parameters).content
    new = NewJob(id=new_id(), tenant="", model_name=model, model_version="1", body=Body(content), ttl_s=60)
    async with make_store() as store:
        await store.submit(new)
        for _ in range(times):
            while not await store.claim([Lane("", model)], "dead", _DEAD_LEASE_S):
                await store.wait_for_work(_DEAD_LEASE_S)
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
    """Makes the first requests fail with these errors."""
    left, infer = list(errors), InferenceService.infer

    async def failing(self: InferenceService, *args: Any, **kwargs: Any) -> Any:
        if left:
            raise left.pop(0)
        return await infer(self, *args, **kwargs)

    monkeypatch.setattr(InferenceService, "infer", failing)


async def test_only_errors_that_may_pass_are_tried_again(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_job_that_is_not_admitted_waits_and_this_does_not_count_as_an_attempt(
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
