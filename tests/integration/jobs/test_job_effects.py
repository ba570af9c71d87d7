"""A job succeeds when the effects that its workflow does not await have happened, and not before."""

from pathlib import Path

from tests.deadlines import wait_until_async
from tests.integration.jobs.served_jobs import SLOW, ended, serving, submitted
from tests.integration.jobs.stored_jobs import MakeStore
from tests.workflows import effects


async def test_a_job_ends_after_its_effects(make_store: MakeStore, tmp_path: Path) -> None:
    async with serving(effects.aside, make_store(), SLOW) as stack:
        job_id = await submitted(stack.client, "aside", parameters={"folder": str(tmp_path)})
        await wait_until_async((tmp_path / "runs").exists, "the effect begins")
        assert (await stack.client.get(f"/v1/jobs/{job_id}")).json()["state"] == "running"
        (tmp_path / "open").touch()
        assert (await ended(stack.client, job_id))["state"] == "succeeded"


async def test_a_job_fails_with_its_effect_s_error(make_store: MakeStore) -> None:
    async with serving(effects.refused_aside, make_store(), SLOW) as stack:
        job = await ended(stack.client, await submitted(stack.client, "refused_aside"))
        assert (job["state"], job["error"]["code"]) == ("failed", "program")
        assert "the other side refuses" in job["error"]["error"]
