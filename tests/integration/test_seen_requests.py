"""`dyorc.request` in workflows and programs of real servers: over links, in cells, behind a gateway, by each protocol."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import msgspec
import numpy as np
import pytest

from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.protocol import inference_pb2, inference_pb2_grpc
from tests.asgi_servers import asgi_server, own_server
from tests.deadlines import TIMEOUT_S
from tests.parted import cluster
from tests.server_process import serving

_MODULE = Path(__file__).parents[1] / "workflows" / "seen_requests.py"
_TARGETS = [f"{_MODULE}:{name}" for name in ("seen", "numbered", "parts", "blindly")]
_SHOWN = {"DYORC_GATEWAY__SHOWN_HEADERS": '["X-User", "x-language"]'}
_TRACE = "0af7651916cd43dd8448eb211c80319c"
_HEADERS = {
    "x-request-id": "mine",
    "x-priority": "2",
    "request-timeout": "200",
    "x-user": "ann",
    "X-Language": "de",
    "cookie": "secret=1",
    "authorization": "Bearer nobody",
    "traceparent": f"00-{_TRACE}-b7ad6b7169203331-01",
}
_EXPECTED = {
    "id": "mine",
    "tenant": "",
    "priority": 2,
    "headers": {"x-user": "ann", "x-language": "de"},
    "trace": _TRACE,
    "has_time": True,
}


@contextlib.contextmanager
def _server(kind: str, **environment: str) -> Iterator[tuple[str, str]]:
    """Runs a server; yields its URL and its address for gRPC."""
    with contextlib.ExitStack() as stack:
        if kind == "cell":
            process, url = stack.enter_context(own_server(*_TARGETS, **environment))
            yield url, process.grpc_address
        elif kind == "ray":
            process = stack.enter_context(serving(_TARGETS, **environment))
            yield process.url, process.grpc_address
        else:
            parts = stack.enter_context(cluster())
            stack.enter_context(parts.orchestrator(_TARGETS))
            gateway = stack.enter_context(parts.gateway(**environment))
            gateway.wait_until_ready()
            yield gateway.url, gateway.grpc_address


@pytest.fixture(scope="module", params=["cell", "parted"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    with _server(request.param, **_SHOWN) as addresses:
        yield addresses


def test_by_plain_values(served: tuple[str, str]) -> None:
    answer = httpx.post(f"{served[0]}/run/seen", json={"text": "x"}, headers=_HEADERS, timeout=TIMEOUT_S).json()
    assert answer == {"workflow": _EXPECTED, "program": _EXPECTED, "waiting": _EXPECTED}


def test_by_the_open_inference_protocol_also_with_a_head_that_is_known(served: tuple[str, str]) -> None:
    async def ask(client: httpx.AsyncClient, number: int) -> int:
        tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1], "data": [number]}
        body = {"id": f"id-{number}", "inputs": [tensor]}
        answer = (await client.post("/v2/models/numbered/infer", json=body)).json()
        return int(answer["outputs"][1]["data"][0])

    async def ask_all() -> None:
        async with httpx.AsyncClient(base_url=served[0], timeout=TIMEOUT_S) as client:
            numbers = [100 + number for number in range(40)]
            assert await asyncio.gather(*(ask(client, number) for number in numbers)) == numbers

    asyncio.run(ask_all())


def test_generated_ids_differ_though_the_head_is_the_same(served: tuple[str, str]) -> None:
    with httpx.Client(base_url=served[0], timeout=TIMEOUT_S) as client:
        answers = [client.post("/run/seen", json={"text": "x"}).json()["workflow"] for _ in range(5)]
    assert len({answer["id"] for answer in answers}) == 5
    assert all(answer["headers"] == {} for answer in answers)


def test_streams_keep_their_request(served: tuple[str, str]) -> None:
    answer = httpx.post(f"{served[0]}/run/parts", json={"text": "x"}, headers={"x-request-id": "one"}, timeout=TIMEOUT_S)
    assert answer.json() == ["one", "one"]


def test_a_program_that_is_not_declared_so(served: tuple[str, str]) -> None:
    answer = httpx.post(f"{served[0]}/run/blindly", json={"text": "x"}, timeout=TIMEOUT_S)
    assert "declare it: @dyorc.program(sees_requests=True)" in answer.json()["error"]


def test_by_grpc(served: tuple[str, str]) -> None:
    request = inference_pb2.ModelInferRequest(model_name="seen", id="by-grpc")
    request.parameters["text"].string_param = "x"
    with grpc.insecure_channel(served[1]) as channel:
        stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelInfer(request, metadata=(("x-user", "bob"), ("cookie", "no"), ("x-priority", "7")), timeout=TIMEOUT_S)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(request, metadata=(("x-priority", "first"),), timeout=TIMEOUT_S)
    assert "X-Priority is 'first', expected a number" in str(refused.value)
    raw = answer.raw_output_contents[0][4:] if answer.raw_output_contents else answer.outputs[0].contents.bytes_contents[0]
    text = raw.decode()
    assert '"id":"by-grpc"' in text.replace(" ", "")
    assert '"priority":7' in text.replace(" ", "")
    assert '"headers":{"x-user":"bob"}' in text.replace(" ", "")


def test_of_jobs(served: tuple[str, str]) -> None:
    body = {"model_name": "numbered", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [3]}]}
    with httpx.Client(base_url=served[0], timeout=TIMEOUT_S) as client:
        job = client.post("/v1/jobs", json=body).json()
        give_up_s = time.monotonic() + TIMEOUT_S
        while client.get(f"/v1/jobs/{job['id']}").json()["state"] != "succeeded":
            assert time.monotonic() < give_up_s
        result = client.get(f"/v1/jobs/{job['id']}/result").json()
    assert result["outputs"][1]["data"] == [-1]


@pytest.mark.parametrize("kind", ["dyorc", "uvicorn"])
def test_in_handlers_and_in_what_they_call(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key, record = new_key()
    write_tenants(file, [TenantRecord(name="ours", keys=[msgspec.structs.replace(record, highest_priority=2)])])
    environment = {"DYORC_GATEWAY__KEYS_FILE": str(file), "DYORC_GATEWAY__SHOWN_HEADERS": '["x-user"]'}
    module = "tests.workflows.seeing_application"
    with contextlib.ExitStack() as stack:
        if kind == "dyorc":
            _, url = stack.enter_context(own_server(_TARGETS[0], "--app", f"{module}:api", **environment))
        else:
            _, url = stack.enter_context(asgi_server(kind, f"{module}:server", **environment))
        headers = {**_HEADERS, "authorization": f"Bearer {key}"}
        expected = _EXPECTED | {"tenant": "ours", "headers": {"x-user": "ann"}}
        answer = httpx.get(f"{url}/see", headers=headers, timeout=TIMEOUT_S).json()
        assert answer["handler"] == expected
        assert answer["model"] == {"workflow": expected, "program": expected, "waiting": expected}
        for nobody in ({"x-user": "eve"}, _HEADERS):
            own = httpx.get(f"{url}/mine", headers=nobody, timeout=TIMEOUT_S).json()
            assert (own["tenant"], own["priority"]) == ("", 0)
        for path in ("see", "mine"):
            refused = httpx.get(f"{url}/{path}", headers=headers | {"x-priority": "1"}, timeout=TIMEOUT_S)
            assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")


@pytest.mark.parametrize("name", ["x user", "x:y", ""])
def test_names_of_headers_are_checked(name: str) -> None:
    with pytest.raises(RuntimeError) as failure, own_server(_TARGETS[0], DYORC_GATEWAY__SHOWN_HEADERS=f'["{name}"]'):
        pass
    assert "shown_headers" in str(failure.value).lower()


def test_on_ray() -> None:
    with _server("ray", **_SHOWN) as (url, _):
        answer = httpx.post(f"{url}/run/seen", json={"text": "x"}, headers=_HEADERS, timeout=TIMEOUT_S).json()
        assert answer == {"workflow": _EXPECTED, "program": _EXPECTED, "waiting": _EXPECTED}
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
        answer = httpx.post(f"{url}/v2/models/numbered/infer", json={"id": "id-7", "inputs": [tensor]}, timeout=TIMEOUT_S).json()
        assert answer["outputs"][1]["data"] == [7]
        assert np.float32(answer["outputs"][0]["data"]) == 1
