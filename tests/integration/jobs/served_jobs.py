"""Jobs over HTTP: a whole server without Ray, with a real SQLite file or a real Redis."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from dyorc.config import GatewayConfig, JobsConfig
from dyorc.store.base import JobStore
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running

X = np.array([1, 2, 3, 4], np.float32)
FAST = JobsConfig(lease_s=2.0)
"""A busy machine holds up a server for less than this."""
SLOW = JobsConfig(lease_s=600)
"""Leases so long that nothing in a test happens because one ended."""


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
    """Submits a job. Returns its id."""
    answer = await submit(client, model, x, **fields)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


async def ended(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    """Waits until the job has ended, and returns it."""
    while (job := (await client.get(f"/v1/jobs/{job_id}", params={"wait_s": "20"})).json())["finished_s"] is None:
        pass
    return job


async def started(folder: Path, number: int = 1) -> None:
    await wait_until_async((folder / f"started-{number}").exists, "the program runs")
