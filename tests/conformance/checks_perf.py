"""3.7: what `perf_analyzer` does with a server, in its order, by HTTP and gRPC.

It reads metadata and configuration, gives up all shared memory, then reads statistics before and after each window of load, of
the model and of those that it is composed of, and takes all eight durations apart without looking whether they are there.
"""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
import tritonclient.utils.shared_memory as shm
from checks_memory import region
from checks_stream import by_callbacks, request
from clients import Client
from rows import Table, expect
from tensors import digit

_SECTION = "3.7 perf_analyzer"
_NUM_REQUESTS = 24
_CONCURRENCY = 4
_DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


async def read_model(client: Client, model: str) -> tuple[dict[str, Any], list[str]]:
    """Reads what comes first: extensions, metadata and configuration, which must fit each other. Returns the configuration and
    the steps.
    """
    assert "statistics" in (await client.call("get_server_metadata"))["extensions"], "no extension 'statistics'"
    metadata = await client.call("get_model_metadata", model)
    config = await client.call("get_model_config", model)
    config = config if client.is_http else config["config"]
    num_batched = 1 if int(config.get("max_batch_size", 0)) else 0
    for kind in ("input", "output"):
        shapes = {one["name"]: [int(size) for size in one.get("shape", [])][num_batched:] for one in metadata[f"{kind}s"]}
        dims = {one["name"]: [int(size) for size in one.get("dims", [])] for one in config[kind]}
        expect(set(dims), set(shapes), f"the {kind}s of the configuration")
        for name, found in dims.items():
            assert found == shapes[name] or (not shapes[name] and found == [1]), f"{name}: dims {found}, shape {shapes[name]}"
    return config, [one["model_name"] for one in config.get("ensemble_scheduling", {}).get("step", [])]


async def statistics(client: Client, model: str) -> dict[str, int]:
    """Returns a model's counters by name, e.g. "queue.ns". gRPC's JSON leaves zeros out, HTTP's must not."""
    (found,) = (await client.call("get_inference_statistics", model))["model_stats"]
    counters = {name: int(found.get(name, 0)) for name in ("inference_count", "execution_count")}
    for name in _DURATIONS:
        duration = found["inference_stats"][name]
        for part in ("count", "ns"):
            value = duration[part] if client.is_http else int(duration.get(part, 0))
            assert type(value) is int, f"{name}.{part} is {value!r}"
            counters[f"{name}.{part}"] = value
    return counters


async def load(client: Client, inputs: list[Any], **options: Any) -> None:
    """Sends a window of load with several requests in flight."""
    if client.is_async:
        gate = asyncio.Semaphore(_CONCURRENCY)

        async def one() -> None:
            async with gate:
                await client.infer("classify", inputs, **options)

        await asyncio.gather(*(one() for _ in range(_NUM_REQUESTS)))
        return
    for _ in range(_NUM_REQUESTS):
        await client.infer("classify", inputs, **options)


async def measure(client: Client, inputs: list[Any], **options: Any) -> None:
    """Sends a window of load between two readings of the statistics of the model and its steps."""
    _, steps = await read_model(client, "classify")
    expect(set(steps), {"small", "large"}, "the composing models")
    for step in steps:
        await read_model(client, step)
    before = {name: await statistics(client, name) for name in ("classify", *steps)}
    await load(client, inputs, **options)
    after = {name: await statistics(client, name) for name in ("classify", *steps)}
    more = {name: {key: after[name][key] - before[name][key] for key in after[name]} for name in after}
    expect(more["classify"]["success.count"], _NUM_REQUESTS, "the model's successes in the window")
    expect(more["classify"]["inference_count"], _NUM_REQUESTS, "the model's inferences in the window")
    expect(more["small"]["inference_count"], _NUM_REQUESTS, "the first step's inferences in the window")
    assert 0 < more["small"]["execution_count"] <= _NUM_REQUESTS, more["small"]
    assert 0 < more["small"]["compute_infer.ns"] <= more["classify"]["success.ns"], more


async def window(client: Client) -> None:
    for kind in ("system", "cuda"):
        await client.call(f"unregister_{kind}_shared_memory")
    await measure(client, [client.input("image", digit(), "FP32")])


async def window_of_shared_memory(client: Client) -> None:
    await client.call("unregister_system_shared_memory")
    image = digit()
    async with region(client) as (name, _, handle):
        shm.set_shared_memory_region(handle, [image])
        inputs = [client.shared_input("image", image.shape, "FP32", name, image.nbytes)]
        outputs = [client.shared_output("probabilities", name, 40, 4096), client.shared_output("took_large", name, 1, 8192)]
        await measure(client, inputs, outputs=outputs)
        found = shm.get_contents_as_numpy(handle, np.float32, [10], offset=4096)
        assert abs(float(found.sum()) - 1) < 1e-3, found


async def window_of_parts(client: Client, grpc_address: str) -> None:
    """Sends a window of load as `--streaming` does, to a decoupled model: a request is over with its empty final response."""
    config, _ = await read_model(client, "count")
    expect(config["model_transaction_policy"]["decoupled"], True, "decoupled")
    before = await statistics(client, "count")
    requests = [request("count", str(at), wants_end=True, num_parts=3) for at in range(4)]
    await by_callbacks(grpc_address, requests, 4 * (3 + 1))
    after = await statistics(client, "count")
    expect(after["success.count"] - before["success.count"], 4, "the model's successes in the window")


CHECKS = {
    "start, and a window of load": window,
    "a window with --shared-memory=system": window_of_shared_memory,
}


def add(table: Table, url: str, grpc_address: str) -> None:
    """Adds all checks."""

    async def run(kind: str, check: Any) -> None:
        async with Client(kind, url, grpc_address) as client:
            await check(client)

    for kind in ("http", "http.aio", "grpc", "grpc.aio"):
        for name, check in CHECKS.items():
            table.add(_SECTION, kind, name, partial(run, kind, check))
    table.add(_SECTION, "grpc", "--streaming", partial(run, "grpc", partial(window_of_parts, grpc_address=grpc_address)))
