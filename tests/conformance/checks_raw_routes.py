"""3.1 by hand: every route and verb, errors in their one form, and what `tritonclient` has no method for."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import httpx
import numpy as np

from tests.conformance.rows import Table, expect
from tests.oip import json_body

_SECTION = "3.1 routes"
_X = np.arange(4, dtype=np.float32)
_V = "/versions/1"

GETS = (
    "/", "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/stats", "/v2/trace/setting", "/v2/logging",
    *(f"/v2/models/behave{v}{rest}" for v in ("", _V) for rest in ("", "/ready", "/config", "/stats", "/trace/setting")),
    "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status",
)  # fmt: skip
POSTS = (
    *(f"/v2/models/behave{v}/{rest}" for v in ("", _V) for rest in ("infer", "generate")),
    *(f"/v2/models/count{v}/generate_stream" for v in ("", _V)),
    *(f"/v2/repository{repo}/index" for repo in ("", "/any")),
    *(f"/v2/repository{repo}/models/nothing/{verb}" for repo in ("", "/any") for verb in ("load", "unload")),
    *(f"/v2/{kind}sharedmemory{rest}/{verb}" for kind in ("system", "cuda") for rest in ("", "/region/r")
      for verb in ("register", "unregister")),
    "/v2/trace/setting", "/v2/models/behave/trace/setting", "/v2/logging",
)  # fmt: skip
_BOTH = ("/trace/setting", "/v2/logging")
_UNKNOWN = ("/nothing", "/v2/nothing", "/v2/models/behave/nothing", "/v2/models/behave/versions/1/nothing", "/v3")


def check_error(response: httpx.Response, *statuses: int) -> dict[str, Any]:
    """Checks that an answer is an error in the one form.

    Raises:
        AssertionError: If it is none.
    """
    assert response.status_code in statuses, f"{response.status_code} {response.text[:200]!r}, expected {statuses}"
    body = response.json()
    kinds = {name: type(body.get(name)) for name in ("error", "code", "retryable")}
    expect(kinds, {"error": str, "code": str, "retryable": bool}, f"the types in {body}")
    assert body["error"], body
    assert "Traceback" not in body["error"], body
    return body


def _is_served(response: httpx.Response) -> bool:
    return response.status_code not in (404, 405) or response.json().get("code") != "http"


async def every_route(client: httpx.AsyncClient) -> None:
    """No route is missing: none answers 404 or 405 for that reason."""
    missing = [f"GET {path}" for path in GETS if not _is_served(await client.get(path))]
    missing += [f"POST {path}" for path in POSTS if not _is_served(await client.post(path, json={}))]
    expect(missing, [], "missing routes")


async def wrong_verbs(client: httpx.AsyncClient) -> None:
    for method, paths in (("POST", GETS), ("GET", POSTS), ("DELETE", GETS), ("PUT", POSTS)):
        for path in paths:
            if path.endswith(_BOTH) and method in ("GET", "POST"):
                continue
            response = await client.request(method, path)
            assert response.status_code == 405, f"{method} {path}: {response.status_code} {response.text[:100]!r}"
            expect(check_error(response, 405)["error"], "Method Not Allowed", f"the text of {method} {path}")


async def unknown_routes(client: httpx.AsyncClient) -> None:
    for path in _UNKNOWN:
        for method in ("GET", "POST"):
            expect(check_error(await client.request(method, path), 404)["error"], "Not Found", f"the text of {method} {path}")


async def versions(client: httpx.AsyncClient) -> None:
    """Versions are digits, and known."""
    for version in ("2", "one", "-1", "1.0"):
        for rest in ("", "/ready", "/config", "/stats"):
            check_error(await client.get(f"/v2/models/behave/versions/{version}{rest}"), 400, 404)
        check_error(await client.post(f"/v2/models/behave/versions/{version}/infer", content=b"{}"), 400, 404)


async def quoted_names(client: httpx.AsyncClient) -> None:
    """Names of models may be quoted in paths."""
    for path in ("/v2/models/%62ehave", "/v2/models/%62ehave/ready", "/v2/models/%62ehave/config"):
        expect((await client.get(path)).status_code, 200, f"the status of {path}")
    body = json_body({"x": _X})
    response = await client.post("/v2/models/b%65have/infer", content=body.content, headers=body.headers)
    expect(response.status_code, 200, "the status of infer")
    check_error(await client.get("/v2/models/no%2Fthing"), 404)


async def health_of_unknown_models(client: httpx.AsyncClient) -> None:
    check_error(await client.get("/v2/models/nothing/ready"), 400, 404)
    check_error(await client.get("/v2/models/behave/versions/9/ready"), 400, 404)


async def statistics(client: httpx.AsyncClient) -> None:
    """All eight durations have all their members, as numbers."""
    for path in ("/v2/models/stats", "/v2/models/behave/stats", "/v2/models/behave/versions/1/stats"):
        for model in (await client.get(path)).json()["model_stats"]:
            names = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
            for name in names:
                duration = model["inference_stats"][name]
                expect({type(duration["count"]), type(duration["ns"])}, {int}, f"the types of {name} in {path}")
            for name in ("last_inference", "inference_count", "execution_count"):
                assert type(model[name]) is int, (path, name, model[name])
            assert isinstance(model["batch_stats"], list), model


async def config(client: httpx.AsyncClient) -> None:
    """Numbers in a configuration are numbers, not proto3-JSON's strings."""
    found = (await client.get("/v2/models/classify/config")).json()
    assert type(found["max_batch_size"]) is int, found
    expect([one["dims"] for one in found["input"]], [[1, 8, 8]], "the inputs' dims")


async def repository_index(client: httpx.AsyncClient) -> None:
    for content in (b"", b"{}", b'{"ready": true}', b'{"ready": false}'):
        models = (await client.post("/v2/repository/index", content=content)).json()
        behave = next(one for one in models if one["name"] == "behave")
        expect((behave.get("version"), behave["state"]), ("1", "READY"), "version and state")
    check_error(await client.post("/v2/repository/index", content=b"["), 400)


async def model_control(client: httpx.AsyncClient) -> None:
    for verb in ("load", "unload"):
        check_error(await client.post(f"/v2/repository/models/nothing/{verb}", json={}), 400, 404, 501, 503)
    expect((await client.get("/v2/models/behave/ready")).status_code, 200, "the status of behave afterwards")


# ------------------------------------------------------------------------------------------------------------------- generate


async def generate(client: httpx.AsyncClient) -> None:
    for version in ("", _V):
        response = await client.post(f"/v2/models/behave{version}/generate", json={"x": [1.5, 2.5], "rest_s": 0.0, "id": "g"})
        assert response.status_code == 200, response.text
        found = response.json()
        expect((found["model_name"], found["model_version"], found["output"]), ("behave", "1", [1.5, 2.5]), "the answer")
        expect(found.get("id"), "g", "the id")


async def generate_texts(client: httpx.AsyncClient) -> None:
    response = await client.post("/v2/models/reverse_text/generate", json={"text": "zolf"})
    assert response.status_code == 200, response.text
    expect(response.json()["output"], "floz", "the answer")


async def generate_errors(client: httpx.AsyncClient) -> None:
    for body in ({}, {"x": "text"}, {"x": [1.0], "nothing": 1}, {"x": {"a": 1}}, []):
        check_error(await client.post("/v2/models/behave/generate", json=body), 400)
    check_error(await client.post("/v2/models/behave/generate", content=b"{"), 400)
    check_error(await client.post("/v2/models/nothing/generate", json={"x": [1.0]}), 404)
    check_error(await client.post("/v2/models/behave/generate", json={"x": [1.0], "fails": True}), 500)
    check_error(await client.post("/v2/models/count/generate", json={"x": [1.0], "num_parts": 3}), 400, 500, 501)


async def events(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the JSON of each event of an answer."""
    response = await client.post(path, json=body, headers={"Accept": "text/event-stream"})
    assert response.status_code == 200, response.text
    kind = response.headers["content-type"].replace(" ", "").lower()
    assert kind.startswith("text/event-stream"), kind
    blocks = [block for block in response.text.replace("\r\n", "\n").split("\n\n") if block.strip()]
    assert all(block.startswith("data: ") for block in blocks), blocks
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


async def generate_stream(client: httpx.AsyncClient) -> None:
    found = await events(client, "/v2/models/count/generate_stream", {"x": [1.0, 2.0], "num_parts": 3})
    expect([one["output"] for one in found], [[2.0, 3.0], [3.0, 4.0], [4.0, 5.0]], "the parts")
    expect({(one["model_name"], one["model_version"]) for one in found}, {("count", "1")}, "the models")
    found = await events(client, "/v2/models/behave/generate_stream", {"x": [1.0, 2.0]})
    expect([one["output"] for one in found], [[1.0, 2.0]], "the one part of a model that does not stream")


async def generate_stream_errors(client: httpx.AsyncClient) -> None:
    """An error before the first part is a status, later an event."""
    check_error(await client.post("/v2/models/count/generate_stream", json={"x": "text"}), 400)
    check_error(await client.post("/v2/models/nothing/generate_stream", json={"x": [1.0]}), 404)
    check_error(await client.post("/v2/models/count/generate_stream", json={"x": [1.0], "fails_at": 0}), 500)
    found = await events(client, "/v2/models/count/generate_stream", {"x": [1.0, 2.0], "num_parts": 4, "fails_at": 2})
    expect([one.get("output") for one in found[:-1]], [[2.0, 3.0], [3.0, 4.0]], "the parts before the error")
    assert "asked to fail" in found[-1]["error"], found[-1]


async def infer_stream(client: httpx.AsyncClient) -> None:
    """Beyond the protocol: parts come as inference responses."""
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
    body = {"id": "s", "inputs": [tensor], "parameters": {"num_parts": 3}}
    found = await events(client, "/v2/models/count/infer_stream", body)
    expect([one["outputs"][0]["data"] for one in found], [[2, 3], [3, 4], [4, 5]], "the parts")
    expect({one["id"] for one in found}, {"s"}, "the ids")


async def infer_stream_frames(client: httpx.AsyncClient) -> None:
    """The same parts come as frames: lengths, JSON, raw tensors."""
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
    body = {"inputs": [tensor], "parameters": {"num_parts": 3, "binary_data_output": True}}
    headers = {"Accept": "application/vnd.dyorc.stream"}
    response = await client.post("/v2/models/count/infer_stream", json=body, headers=headers)
    assert response.status_code == 200, response.text
    raw, found = response.content, []
    while raw:
        json_bytes, rest_bytes = (int(size) for size in np.frombuffer(raw[:8], "<u4"))
        assert len(raw) >= 8 + json_bytes + rest_bytes, "a frame that is cut off"
        head = json.loads(raw[8 : 8 + json_bytes])
        expect(head["outputs"][0]["parameters"]["binary_data_size"], rest_bytes, "binary_data_size")
        found.append(np.frombuffer(raw[8 + json_bytes : 8 + json_bytes + rest_bytes], np.float32).tolist())
        raw = raw[8 + json_bytes + rest_bytes :]
    expect(found, [[2, 3], [3, 4], [4, 5]], "the parts")


async def unary_of_a_streaming_model(client: httpx.AsyncClient) -> None:
    body = json_body({"x": _X})
    error = check_error(await client.post("/v2/models/count/infer", content=body.content, headers=body.headers), 501)
    expect(error["code"], "unsupported", "the code")


CHECKS = {
    "every route is there": (_SECTION, every_route),
    "the wrong verb: 405 in the one form": (_SECTION, wrong_verbs),
    "no such route: 404 in the one form": (_SECTION, unknown_routes),
    "versions are digits, and known": (_SECTION, versions),
    "quoted model names": (_SECTION, quoted_names),
    "readiness of unknown models and versions": (_SECTION, health_of_unknown_models),
    "statistics: every member, as numbers": ("3.7 perf_analyzer", statistics),
    "configuration: numbers are numbers": ("3.7 perf_analyzer", config),
    "repository index with and without a filter": (_SECTION, repository_index),
    "load and unload of an unknown model": (_SECTION, model_control),
    "generate": ("3.1 generate", generate),
    "generate with texts": ("3.1 generate", generate_texts),
    "generate: errors": ("3.1 generate", generate_errors),
    "generate_stream": ("3.1 generate", generate_stream),
    "generate_stream: errors before and after the first part": ("3.1 generate", generate_stream_errors),
    "infer_stream as events": ("beyond the protocol", infer_stream),
    "infer_stream as frames": ("beyond the protocol", infer_stream_frames),
    "infer of a streaming model": ("3.2 statuses", unary_of_a_streaming_model),
}


def add(table: Table, url: str) -> None:
    """Adds all checks."""

    async def run(check: Any) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
            await check(client)

    for name, (section, check) in CHECKS.items():
        table.add(section, "http by hand", name, partial(run, check))
