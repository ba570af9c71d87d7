"""The gateway needs no more of the component that runs workflows than the contract in `backend.py` says."""

import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import httpx
import numpy as np
import pytest

from dyorc.authoring.workflow import Workflow
from dyorc.config import GatewayConfig
from dyorc.core.arrays import Array
from dyorc.errors import CapacityError
from dyorc.gateway.backend import Backend
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.direct import DirectInference
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.service import InferenceService
from dyorc.models.registry import ModelRegistry
from tests import oip
from tests.fake_backend import FakeBackend
from tests.workflows import arithmetic, streaming

X = np.arange(4, dtype=np.float32)


class Served(NamedTuple):
    """A gateway over a fake."""

    client: httpx.AsyncClient
    backend: FakeBackend


def answer(workflow: Workflow, inputs: Sequence[Array]) -> list[list[Array]]:
    """Returns the answer to a request."""
    if inputs[0][0] == 13:
        raise CapacityError("no room for 13", retry_after_s=3)
    return [[inputs[0] + number] for number in range(3 if workflow.is_streaming else 1)]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Serves two models, one of which streams."""
    repertoire = ModelRegistry.of([arithmetic.quadruple, streaming.count_up])
    fake = FakeBackend(repertoire, answer)
    backend: Backend = fake
    config = GatewayConfig(port=0, drain_timeout_s=1)
    with contextlib.closing(InferenceService(backend, config)) as service:
        async with (
            HttpServer(Gateway(service), config, service.shedding, DirectInference(service)) as server,
            httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as client,
        ):
            yield Served(client, fake)


async def test_it_answers(served: Served) -> None:
    body = oip.binary_body({"x": X}, parameters={"binary_data_output": True})
    found = oip.read(await served.client.post("/v2/models/quadruple/infer", content=body.content, headers=body.headers))
    np.testing.assert_array_equal(found.outputs["output"], X)


async def test_it_answers_in_parts(served: Served) -> None:
    body = oip.json_body({"x": X[:2]}, parameters={"num_parts": 3})
    response = await served.client.post("/v2/models/count_up/infer_stream", content=body.content, headers=body.headers)
    assert response.text.count("data: ") == 3, response.text


async def test_it_gets_the_whole_terms_of_a_request(served: Served) -> None:
    body = oip.json_body({"x": X}, parameters={"priority": 1, "timeout": 60_000_000, "explain": True})
    headers = {**body.headers, "Request-Timeout": "30"}
    sent_ns = time.monotonic_ns()
    response = await served.client.post("/v2/models/quadruple/infer", content=body.content, headers=headers)
    assert response.json()["parameters"]["explain"] == [{"at_ms": 0.0, "event": "answered"}]
    (terms,) = served.backend.seen
    assert terms.deadline_ns is not None
    assert sent_ns < terms.deadline_ns <= time.monotonic_ns() + 30 * 10**9, "the smaller of both limits"
    assert (terms.priority > 0, terms.tenant, terms.weight) == (True, "", 1.0)


async def test_its_errors_become_the_gateways(served: Served) -> None:
    body = oip.json_body({"x": np.full(4, 13, np.float32)})
    response = await served.client.post("/v2/models/quadruple/infer", content=body.content, headers=body.headers)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "3")
    assert oip.error_text(response) == "no room for 13"
    assert (response.json()["code"], response.json()["retryable"]) == ("capacity", True)


async def test_it_knows_which_programs_are_ready(served: Served) -> None:
    assert (await served.client.get("/v2/models/quadruple/ready")).status_code == 503
    served.backend.status.joined("double", "double-0", 0)
    assert (await served.client.get("/v2/models/quadruple/ready")).status_code == 200
    assert (await served.client.get("/v2/health/ready")).status_code == 503, "the other program has no replica"


async def test_it_provides_the_figures(served: Served) -> None:
    status = (await served.client.get("/status")).json()
    assert status == {"backend": "fake", "pid": os.getpid(), "versions": {}}
    await test_it_answers(served)
    (found,) = (await served.client.get("/v2/models/quadruple/stats")).json()["model_stats"]
    assert found["inference_count"] == 1
