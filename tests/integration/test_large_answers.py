"""Answers that are larger than the server sends, over HTTP, gRPC and in jobs."""

from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.config import GatewayConfig, JobsConfig
from dyorc.store.sqlite import SqliteStore
from tests import oip
from tests.integration.stack import running
from tests.workflows import large

SEED = np.array([3], np.float32)
ANSWER_BYTES = 4 * large.NUM_VALUES


@dyorc.workflow
async def stretched(seed: Float[np.ndarray, "1"]) -> Float[np.ndarray, "2000000"]:
    return large.ramp(seed)


def sending_at_most(num_bytes: int) -> GatewayConfig:
    return GatewayConfig(port=0, drain_timeout_s=1, max_answer_bytes=num_bytes)


@pytest.mark.parametrize("is_raw", [True, False])
async def test_an_answer_that_is_too_large_is_refused_with_both_sizes_and_the_connection_goes_on(is_raw: bool) -> None:
    async with running([stretched], gateway=sending_at_most(ANSWER_BYTES - 1)) as stack:
        body = oip.json_body({"seed": SEED}, parameters={"binary_data_output": is_raw})
        for _ in range(2):
            answer = await stack.client.post("/v2/models/stretched/infer", content=body.content, headers=body.headers)
            assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (413, "answer_too_large", False)
            assert f"have {ANSWER_BYTES} bytes, the server sends at most {ANSWER_BYTES - 1}" in answer.json()["error"]
            assert answer.headers.get("connection") != "close"


async def test_an_answer_of_exactly_the_limit_is_sent() -> None:
    async with running([stretched], gateway=sending_at_most(ANSWER_BYTES)) as stack:
        body = oip.binary_body({"seed": SEED}, parameters={"binary_data_output": True})
        answer = await stack.client.post("/v2/models/stretched/infer", content=body.content, headers=body.headers)
        assert answer.status_code == 200
        np.testing.assert_array_equal(oip.read(answer).outputs["output"][-1], SEED + large.NUM_VALUES - 1)


async def test_a_job_with_an_answer_that_is_too_large_fails_at_once(tmp_path: Path) -> None:
    store, jobs = SqliteStore(tmp_path / "jobs.sqlite"), JobsConfig(lease_s=60)
    async with running([stretched], gateway=sending_at_most(ANSWER_BYTES - 1), store=store, jobs=jobs) as stack:
        body = oip.json_body({"seed": SEED}, model_name="stretched")
        job_id = (await stack.client.post("/v1/jobs", content=body.content, headers=body.headers)).json()["id"]
        job = (await stack.client.get(f"/v1/jobs/{job_id}", params={"wait_s": "60"})).json()
        assert (job["state"], job["num_attempts"], job["error"]["code"]) == ("failed", 1, "answer_too_large")
        assert (await stack.client.get(f"/v1/jobs/{job_id}/result")).status_code == 413
