"""3.1: health, metadata, configuration, statistics, repository, trace and log settings, by all four clients."""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from clients import KINDS, Client
from rows import Table, expect
from tensors import DATATYPES, input_name, output_name

_SECTION = "3.1 routes"
_EXTENSIONS = {
    "binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics", "system_shared_memory"
}  # fmt: skip
_DURATIONS = {"success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"}
MODELS = ("classify", "mirror", "every_type", "behave", "count", "small", "large", "reverse_text")


async def live(client: Client) -> None:
    expect(await client.call("is_server_live"), True, "is_server_live")


async def ready(client: Client) -> None:
    expect(await client.call("is_server_ready"), True, "is_server_ready")


async def model_ready(client: Client) -> None:
    for name in MODELS:
        expect(await client.call("is_model_ready", name), True, f"is_model_ready({name!r})")
        expect(await client.call("is_model_ready", name, "1"), True, f"is_model_ready({name!r}, '1')")


async def unknown_model_is_not_ready(client: Client) -> None:
    status, _ = await client.refusal("is_model_ready", "nothing")
    if status == "none":
        expect(await client.call("is_model_ready", "nothing"), False, "is_model_ready('nothing')")
    else:
        expect(status, "NOT_FOUND", "the status")


async def server_metadata(client: Client) -> None:
    found = await client.call("get_server_metadata")
    expect(found["name"], "dyorc", "the name")
    assert found["version"], "no version"
    assert set(found["extensions"]) >= _EXTENSIONS, f"missing extensions: {sorted(_EXTENSIONS - set(found['extensions']))}"


def _tensors(found: list[dict[str, Any]]) -> dict[str, tuple[str, list[int]]]:
    return {one["name"]: (one["datatype"], [int(size) for size in one.get("shape", [])]) for one in found}


async def model_metadata(client: Client) -> None:
    for version in ("", "1"):
        found = await client.call("get_model_metadata", "classify", version)
        expect((found["name"], found["versions"]), ("classify", ["1"]), "name and versions")
        assert found["platform"], "no platform"
        expect(_tensors(found["inputs"]), {"image": ("FP32", [1, 8, 8])}, "the inputs")
        expect(_tensors(found["outputs"]), {"probabilities": ("FP32", [10]), "took_large": ("BOOL", [])}, "the outputs")


async def metadata_of_every_type(client: Client) -> None:
    found = await client.call("get_model_metadata", "every_type")
    expect(_tensors(found["inputs"]), {input_name(one): (one, [-1, -1]) for one in DATATYPES}, "the inputs")
    expect(_tensors(found["outputs"]), {output_name(one): (one, [-1, -1]) for one in DATATYPES}, "the outputs")


async def unknown_models(client: Client, method: str) -> None:
    for model, version in (("nothing", ""), ("classify", "7")):
        status, text = await client.refusal(method, model, version)
        expect(status, "NOT_FOUND", f"the status of {method}({model!r}, {version!r})")
        assert model in text, text


async def _config(client: Client, model: str, version: str = "") -> dict[str, Any]:
    found = await client.call("get_model_config", model, version)
    return found if client.is_http else found["config"]


async def model_config(client: Client) -> None:
    for version in ("", "1"):
        found = await _config(client, "classify", version)
        expect(found["name"], "classify", "the name")
        assert found.get("platform") or found.get("backend"), "neither platform nor backend"
        expect(int(found.get("max_batch_size", 0)), 0, "max_batch_size; shapes are those of one item")
        expect([(one["name"], one["data_type"]) for one in found["input"]], [("image", "TYPE_FP32")], "the inputs")
        expect([int(size) for size in found["input"][0]["dims"]], [1, 8, 8], "the input's dims")
        expect({one["name"] for one in found["output"]}, {"probabilities", "took_large"}, "the outputs")


async def config_of_every_type(client: Client) -> None:
    found = await _config(client, "every_type")
    types = {one["name"]: one["data_type"] for one in found["input"]}
    expected = {input_name(one): "TYPE_STRING" if one == "BYTES" else f"TYPE_{one}" for one in DATATYPES}
    expect(types, expected, "the inputs' types")


async def config_names_composing_models(client: Client) -> None:
    found = await _config(client, "classify")
    expect({one["model_name"] for one in found["ensemble_scheduling"]["step"]}, {"small", "large"}, "the steps")


async def config_of_a_streaming_model(client: Client) -> None:
    expect((await _config(client, "count"))["model_transaction_policy"]["decoupled"], True, "decoupled")
    policy = (await _config(client, "classify")).get("model_transaction_policy", {})
    expect(policy.get("decoupled", False), False, "decoupled of one that does not stream")


async def _statistics(client: Client, model: str = "", version: str = "") -> dict[str, dict[str, Any]]:
    found = await client.call("get_inference_statistics", model, version)
    return {one["name"]: one for one in found["model_stats"]}


async def statistics_of_all(client: Client) -> None:
    found = await _statistics(client)
    assert set(found) >= set(MODELS), f"missing: {sorted(set(MODELS) - set(found))}"
    for name, one in found.items():
        expect(set(one["inference_stats"]), _DURATIONS, f"the durations of {name}")
        expect(one["version"], "1", "the version")


async def statistics_count(client: Client) -> None:
    def count(one: dict[str, Any], name: str) -> int:
        return int(one["inference_stats"][name].get("count", 0))

    x = np.ones(4, np.float32)
    before = (await _statistics(client, "behave", "1"))["behave"]
    for _ in range(3):
        await client.behave(x)
    status, _ = await client.refusal("infer", "behave", [client.input("x", x, "FP32")], parameters={"fails": True})
    expect(status, "INTERNAL", "the status of the failing request")
    after = (await _statistics(client, "behave"))["behave"]
    expect(count(after, "success") - count(before, "success"), 3, "more successes")
    expect(count(after, "fail") - count(before, "fail"), 1, "more failures")
    expect(int(after["inference_count"]) - int(before.get("inference_count", 0)), 3, "more inferences")
    assert int(after["execution_count"]) > int(before.get("execution_count", 0)), "no more executions"
    assert int(after["last_inference"]) > 0, "no time of the last inference"
    spent = {name: int(after["inference_stats"][name].get("ns", 0)) for name in ("success", "compute_infer")}
    assert all(spent.values()), f"no time was spent: {spent}"


async def repository_index(client: Client) -> None:
    found = await client.call("get_model_repository_index")
    states = {one["name"]: one.get("state") for one in (found if client.is_http else found["models"])}
    expect({name: states.get(name) for name in MODELS}, dict.fromkeys(MODELS, "READY"), "the models' states")


async def loads_what_is_served(client: Client) -> None:
    """Its code is the same, so nothing changes."""
    await client.call("load_model", "classify")
    expect(await client.call("is_model_ready", "classify"), True, "is_model_ready afterwards")


async def refuses_unknown_models(client: Client) -> None:
    for method in ("load_model", "unload_model"):
        status, text = await client.refusal(method, "nothing")
        assert status in ("NOT_FOUND", "UNAVAILABLE", "INVALID_ARGUMENT"), f"{method}: {status}, {text!r}"
        assert "nothing" in text, text


async def trace_settings(client: Client) -> None:
    for arguments in ((), ("classify",)):
        found = await client.call("get_trace_settings", *arguments)
        assert isinstance(found, dict), found
    status, text = await client.refusal("update_trace_settings", settings={"trace_level": ["OFF"]})
    assert status in ("none", "UNAVAILABLE", "UNIMPLEMENTED", "INVALID_ARGUMENT"), f"{status}, {text!r}"
    assert not text.startswith("an exception occurred in the client"), text


async def log_settings(client: Client) -> None:
    found = await client.call("get_log_settings")
    assert isinstance(found, dict), found
    status, text = await client.refusal("update_log_settings", {"log_verbose_level": 0})
    assert status in ("none", "UNAVAILABLE", "UNIMPLEMENTED", "INVALID_ARGUMENT"), f"{status}, {text!r}"
    assert not text.startswith("an exception occurred in the client"), text


CHECKS = {
    "server is live": live,
    "server is ready": ready,
    "models are ready, with and without a version": model_ready,
    "an unknown model is not ready": unknown_model_is_not_ready,
    "server metadata and extensions": server_metadata,
    "model metadata, with and without a version": model_metadata,
    "model metadata of every type": metadata_of_every_type,
    "metadata of an unknown model or version": partial(unknown_models, method="get_model_metadata"),
    "model configuration, with and without a version": model_config,
    "model configuration of every type": config_of_every_type,
    "model configuration names composing models": config_names_composing_models,
    "model configuration says what streams": config_of_a_streaming_model,
    "configuration of an unknown model or version": partial(unknown_models, method="get_model_config"),
    "statistics of all models, all eight durations": statistics_of_all,
    "statistics count successes, failures, executions": statistics_count,
    "statistics of an unknown model or version": partial(unknown_models, method="get_inference_statistics"),
    "repository index": repository_index,
    "load of what is served": loads_what_is_served,
    "load and unload of an unknown model": refuses_unknown_models,
    "trace settings": trace_settings,
    "log settings": log_settings,
}


def add(table: Table, url: str, grpc_address: str) -> None:
    """Adds all checks for all four clients."""

    async def run(kind: str, check: Any) -> None:
        async with Client(kind, url, grpc_address) as client:
            await check(client)

    for kind in KINDS:
        for name, check in CHECKS.items():
            table.add(_SECTION, kind, name, partial(run, kind, check))
