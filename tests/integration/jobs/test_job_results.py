"""The state, result or error of a job over HTTP, which only its tenant sees."""

from pathlib import Path

import numpy as np
import pytest

from dyorc.config import GatewayConfig
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from tests import oip
from tests.integration.jobs.served_jobs import FAST, X, ended, serving, submit, submitted
from tests.integration.jobs.stored_jobs import MakeStore
from tests.integration.stack import running
from tests.workflows import arithmetic, faulty

pytestmark = pytest.mark.together


async def test_a_job_returns_what_infer_returns(make_store: MakeStore) -> None:
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


async def test_a_page_of_jobs_goes_on_where_the_one_before_ended(make_store: MakeStore) -> None:
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
