"""Which submissions over HTTP are refused, and which are the same job again."""

import asyncio
from typing import Any

import numpy as np
import pytest

from dyorc.config import GatewayConfig
from tests import oip
from tests.deadlines import TIMEOUT_S
from tests.integration.jobs.served_jobs import X, serving, submit
from tests.integration.jobs.stored_jobs import MakeStore
from tests.integration.stack import running
from tests.workflows import arithmetic

pytestmark = pytest.mark.together


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


async def test_malformed_bodies_are_refused(file_store: MakeStore) -> None:
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


async def test_an_unknown_field_is_named_together_with_the_known_ones(file_store: MakeStore) -> None:
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
        reader, writer = await asyncio.open_connection(stack.client.base_url.host, stack.client.base_url.port)
        writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: test\r\nContent-Length: 5001\r\n\r\n")  # and no body
        async with asyncio.timeout(TIMEOUT_S):
            assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_jobs_refuse_streams_and_shared_memory_of_clients(file_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(arithmetic.quadruple, file_store(), num_replicas=0) as stack:
        tensor = {"name": "x", "shape": [4], "datatype": "FP32", "parameters": {"shared_memory_region": "r"}}
        request = {"model_name": "quadruple", "inputs": [tensor]}
        answer = await stack.client.post("/v1/jobs", json=request)
        assert (answer.status_code, answer.json()["code"]) == (501, "unsupported"), answer.text
        monkeypatch.setitem(vars(stack.service.catalog.model("quadruple")), "is_streaming", True)
        answer = await submit(stack.client, "quadruple")
        assert (answer.status_code, answer.json()["code"]) == (501, "unsupported")
