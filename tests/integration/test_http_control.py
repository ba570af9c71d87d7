"""The routes besides inference: configuration, statistics, repository, settings, documentation, and what all have in common."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from dyorc.engine.tallies import BatchTally, ModelStatistics
from dyorc.gateway.tenants import ANONYMOUS
from tests import oip
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, scripted, slow, tensors

_DURATIONS = {"success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"}


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module; one of its models never becomes ready."""
    async with running([arithmetic.sums, tensors.affine, scripted.count]) as found:
        yield found


async def _get(stack: Stack, path: str) -> Any:
    response = await stack.client.get(path)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


@pytest.mark.parametrize("version", ["", "/versions/1"])
async def test_a_workflows_configuration_names_its_programs(stack: Stack, version: str) -> None:
    assert await _get(stack, f"/v2/models/affine{version}/config") == {
        "name": "affine",
        "platform": "dyorc_workflow",
        "backend": "dyorc",
        "version_policy": {"specific": {"versions": [1]}},
        "max_batch_size": 0,
        "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": [4]},
            {"name": "index", "data_type": "TYPE_INT64", "dims": [2]},
        ],
        "output": [{"name": "output", "data_type": "TYPE_FP32", "dims": [2]}],
        "model_transaction_policy": {"decoupled": False},
        "ensemble_scheduling": {
            "step": [{"model_name": "affine_program", "model_version": -1, "input_map": {}, "output_map": {}}]
        },
        "parameters": {"factor": {"string_value": "float"}},
    }


async def test_a_programs_configuration_says_how_it_is_batched(stack: Stack) -> None:
    found = await _get(stack, "/v2/models/add_up/config")
    assert found["dynamic_batching"]["default_queue_policy"] == {"allow_timeout_override": True, "max_queue_size": 16_384}
    assert found["parameters"]["dyorc_max_batch_size"] == {"string_value": "32"}
    assert found["instance_group"] == [{"name": "add_up", "count": 1, "kind": "KIND_CPU"}]
    assert (found["max_batch_size"], found["input"][0]["dims"]) == (0, [-1])
    assert "ensemble_scheduling" not in found


async def test_a_streaming_model_is_decoupled(stack: Stack) -> None:
    found = await _get(stack, "/v2/models/count/config")
    assert found["model_transaction_policy"] == {"decoupled": True}
    assert found["output"][0]["data_type"] == "TYPE_STRING"


async def test_statistics_have_all_eight_kinds(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ModelStatistics(last_inference_ms=7, inference_count=3, execution_count=2, batches={2: BatchTally(), 1: BatchTally()})
    found.queue.add(50, 3)
    monkeypatch.setattr(stack.orchestrator, "statistics", {"sums": found}.__getitem__)
    (entry,) = (await _get(stack, "/v2/models/sums/versions/1/stats"))["model_stats"]
    assert (entry["name"], entry["version"], entry["last_inference"]) == ("sums", "1", 7)
    assert (entry["inference_count"], entry["execution_count"]) == (3, 2)
    assert entry["inference_stats"].keys() == _DURATIONS
    assert entry["inference_stats"]["queue"] == {"count": 3, "ns": 50}
    assert [batch["batch_size"] for batch in entry["batch_stats"]] == [1, 2]
    assert entry["batch_stats"][0].keys() == {"batch_size", "compute_input", "compute_infer", "compute_output"}


async def test_statistics_of_all_models_come_together(stack: Stack) -> None:
    found = await _get(stack, "/v2/models/stats")
    assert [entry["name"] for entry in found["model_stats"]] == ["add_up", "affine", "affine_program", "count", "sums"]
    assert all(entry["inference_stats"].keys() == _DURATIONS for entry in found["model_stats"])


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": true}'])
@pytest.mark.parametrize("repository", ["", "/any"])
async def test_the_index_lists_models(stack: Stack, body: bytes, repository: str) -> None:
    response = await stack.client.post(f"/v2/repository{repository}/index", content=body)
    assert response.json()[0] == {"name": "add_up", "version": "1", "state": "READY", "reason": ""}
    assert len(response.json()) == 5


async def test_the_index_distinguishes_ready_models() -> None:
    async with running([arithmetic.sums, slow.never_ready], num_replicas=0) as stack:
        await stack.start_worker(arithmetic.add_up)
        entries = (await stack.client.post("/v2/repository/index")).json()
        assert [(one["name"], one["state"]) for one in entries] == [
            ("add_up", "READY"), ("never_ready", "LOADING"), ("slow_to_load", "LOADING"), ("sums", "READY"),
        ]  # fmt: skip
        assert entries[1]["reason"] == "program 'slow_to_load' is starting"
        ready = (await stack.client.post("/v2/repository/index", json={"ready": True})).json()
        assert [one["name"] for one in ready] == ["add_up", "sums"]
        stack.orchestrator.status.load_failed("slow_to_load", "no such file")
        entries = (await stack.client.post("/v2/repository/index")).json()
        assert (entries[1]["state"], entries[1]["reason"]) == (
            "UNAVAILABLE", "program 'slow_to_load' is failing: no such file",
        )  # fmt: skip


@pytest.mark.parametrize("action", ["load", "unload"])
@pytest.mark.parametrize("repository", ["", "/any"])
async def test_models_are_not_loaded_where_nobody_can(stack: Stack, action: str, repository: str) -> None:
    response = await stack.client.post(f"/v2/repository{repository}/models/sums/{action}")
    assert response.status_code == 501
    assert "cannot be loaded or unloaded here" in oip.error_text(response)


@pytest.mark.parametrize(
    ("path", "name", "value", "other"),
    [
        ("/v2/trace/setting", "trace_level", ["OFF"], ["TIMESTAMPS"]),
        ("/v2/models/sums/trace/setting", "trace_rate", "1000", "1"),
    ],
)
async def test_settings_are_shown_and_not_changed(stack: Stack, path: str, name: str, value: Any, other: Any) -> None:
    settings = await _get(stack, path)
    assert settings.get(name) == value
    for body in (b"", b"{}", json.dumps({name: value}), json.dumps({name: None}), json.dumps(settings)):
        response = await stack.client.post(path, content=body)
        assert (response.status_code, response.json()) == (200, settings)
    response = await stack.client.post(path, json={name: other})
    assert response.status_code == 501
    assert name in oip.error_text(response)


@pytest.mark.parametrize("name", ["log_color", "log_fil", "level"])
async def test_a_setting_of_the_log_that_is_unknown_is_refused_by_name(stack: Stack, name: str) -> None:
    before = (await stack.client.get("/v2/logging")).json()
    refused = await stack.client.post("/v2/logging", json={"log_info": True, name: "red"})
    assert refused.status_code == 501
    assert f"unknown setting {name!r}" in oip.error_text(refused)
    assert (await stack.client.get("/v2/logging")).json() == before, "nothing of it was taken on"


@pytest.mark.parametrize("body", [b"{", b"[]", b'"a"', b"\xff", b'{"a": ' + b"[" * 30_000])
@pytest.mark.parametrize("path", ["/v2/logging", "/v2/trace/setting", "/v2/repository/index"])
async def test_malformed_json_is_refused(stack: Stack, path: str, body: bytes) -> None:
    response = await stack.client.post(path, content=body)
    assert response.status_code == 400
    oip.error_text(response)


async def test_a_long_control_body_is_refused(stack: Stack) -> None:
    response = await stack.client.post("/v2/logging", content=b" " * 70_000)
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v2/nowhere", 404, None),
        ("OPTIONS", "/v2/nowhere", 404, None),
        ("GET", "/v2/models/sums/versions/1/trace", 404, None),
        ("POST", "/v2/models/sums", 405, "GET, HEAD, OPTIONS"),
        ("DELETE", "/v2/trace/setting", 405, "GET, HEAD, OPTIONS, POST"),
        ("GET", "/v2/repository/index", 405, "OPTIONS, POST"),
        ("GET", "/v2/models/sums/infer", 405, "OPTIONS, POST"),
        ("PUT", "/v2/models/sums/generate_stream", 405, "OPTIONS, POST"),
    ],
)
async def test_wrong_routes_and_methods_are_refused(stack: Stack, method: str, path: str, status: int, allow: str | None) -> None:
    response = await stack.client.request(method, path)
    assert response.status_code == status
    assert oip.error_text(response) == {404: "Not Found", 405: "Method Not Allowed"}[status]
    assert response.headers.get("allow") == allow


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v2/models/sums/infer", "OPTIONS, POST"),
        ("/v2/trace/setting", "GET, HEAD, OPTIONS, POST"),
        ("/v2/health/live", "GET, HEAD, OPTIONS"),
    ],
)
async def test_options_lists_the_methods_of_a_route(stack: Stack, path: str, allow: str) -> None:
    response = await stack.client.options(path)
    assert (response.status_code, response.headers["allow"], response.content) == (204, allow, b"")


@pytest.mark.parametrize(("path", "status"), [("/v2", 200), ("/v2/health/ready", 200), ("/v2/models/nums", 404), ("/docs", 200)])
async def test_head_is_get_without_a_body(stack: Stack, path: str, status: int) -> None:
    get, head = await stack.client.get(path), await stack.client.head(path)
    assert (head.status_code, head.content) == (status, b"")
    assert head.headers["content-length"] == get.headers["content-length"]
    assert (await stack.client.head("/v2/models/sums/infer")).status_code == 405


async def test_names_may_be_quoted(stack: Stack) -> None:
    assert (await _get(stack, "/v2/models/affine%5Fprogram"))["name"] == "affine_program"
    response = await stack.client.post("/v2/models/s%75ms/infer", content=b"{}")
    assert "inputs" in oip.error_text(response)


async def test_a_tenant_sees_its_own_models_only(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = replace(ANONYMOUS, name="a", models=frozenset({"sums"}))
    for module in ("dyorc.gateway.http.authentication", "dyorc.gateway.access"):
        monkeypatch.setattr(f"{module}.ANONYMOUS", tenant)
    assert await _get(stack, "/v2/models") == {"models": ["sums"]}
    assert [one["name"] for one in (await _get(stack, "/v2/models/stats"))["model_stats"]] == ["sums"]
    assert [one["name"] for one in (await stack.client.post("/v2/repository/index")).json()] == ["sums"]
    await _get(stack, "/v2/models/sums/config")
    for path in ("", "/ready", "/config", "/stats", "/versions/1", "/trace/setting"):
        response = await stack.client.get(f"/v2/models/affine{path}")
        assert response.status_code == 403, path
        assert "may not use model 'affine'" in oip.error_text(response)
    for action in ("infer", "infer_stream", "generate", "generate_stream"):
        assert (await stack.client.post(f"/v2/models/affine/{action}", content=b"{}")).status_code == 403


async def test_the_documentation_needs_nothing_from_elsewhere(stack: Stack) -> None:
    page = await stack.client.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
    assert "//" not in page.text.replace("<!doctype html>", "")
    for name, kind in (
        ("swagger-ui.css", "text/css"),
        ("swagger-ui-bundle.js", "text/javascript"),
        ("start.js", "text/javascript"),
    ):
        assert f'"docs/{name}"' in page.text
        file = await stack.client.get(f"/docs/{name}")
        assert file.headers["content-type"].startswith(kind)
    assert "openapi.json" in (await stack.client.get("/docs/start.js")).text
    paths = (await _get(stack, "/openapi.json"))["paths"]
    assert "post" in paths["/v2/models/{name}/versions/{version}/generate_stream"]
    assert "get" in paths["/v2/models/{name}/config"]
