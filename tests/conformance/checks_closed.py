"""A server that shares no memory, cannot load one of its models, and takes few requests, by all four clients."""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
from clients import KINDS, Client
from rows import Table, expect

_X = np.arange(4, dtype=np.float32)
_DISABLED = "Client shared memory is disabled."
_NUM_REQUESTS = 12  # more than the server takes


async def server_is_not_ready(client: Client) -> None:
    expect(await client.call("is_server_live"), True, "is_server_live")
    expect(await client.call("is_server_ready"), False, "is_server_ready")


async def model_is_not_ready(client: Client) -> None:
    expect(await client.call("is_model_ready", "broken"), False, "is_model_ready('broken')")
    expect(await client.call("is_model_ready", "behave"), True, "is_model_ready('behave')")


async def index_gives_the_reason(client: Client) -> None:
    found = await client.call("get_model_repository_index")
    models = {one["name"]: one for one in (found if client.is_http else found["models"])}
    expect((models["broken"]["state"], models["behave"]["state"]), ("UNAVAILABLE", "READY"), "the states")
    assert models["broken"].get("reason"), "no reason"


async def memory_is_disabled(client: Client) -> None:
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("register_system_shared_memory", ("region", "/key", 16)),
        ("get_system_shared_memory_status", ()),
        ("unregister_system_shared_memory", ("region",)),
        ("register_cuda_shared_memory", ("region", b"aGFuZGxl", 0, 16)),
        ("get_cuda_shared_memory_status", ()),
        ("unregister_cuda_shared_memory", ()),
    ]
    for method, arguments in calls:
        status, text = await client.refusal(method, *arguments)
        expect(status, "UNIMPLEMENTED", f"the status of {method}")
        assert text.startswith(_DISABLED), f"{method}: {text!r}"


async def inference_with_disabled_memory(client: Client) -> None:
    inputs = [client.shared_input("x", _X.shape, "FP32", "region", _X.nbytes)]
    status, text = await client.refusal("infer", "behave", inputs)
    expect(status, "UNIMPLEMENTED", "the status")
    assert text.startswith(_DISABLED), text


async def memory_is_no_extension(client: Client) -> None:
    found = (await client.call("get_server_metadata"))["extensions"]
    assert not [one for one in found if "shared_memory" in one], found


async def model_cannot_be_loaded(client: Client) -> None:
    status, text = await client.refusal("infer", "broken", [client.input("x", _X, "FP32")], timeout=20_000_000)
    assert status in ("INTERNAL", "UNAVAILABLE"), f"{status}, {text!r}"
    assert "broken" in text, text


async def too_many_requests(client: Client) -> None:
    """Some requests are refused at once, and can be sent again; the others are answered."""
    inputs = [client.input("x", _X, "FP32")]
    arguments: dict[str, Any] = {"parameters": {"rest_s": 0.1}}
    if client.is_async:
        calls = [client.refusal("infer", "behave", inputs, **arguments) for _ in range(_NUM_REQUESTS)]
        statuses = [status for status, _ in await asyncio.gather(*calls)]
    else:
        statuses = await asyncio.gather(*(asyncio.to_thread(_in_thread, client, arguments) for _ in range(_NUM_REQUESTS)))
    refused = [status for status in statuses if status != "none"]
    assert 0 < len(refused) < _NUM_REQUESTS, f"{len(refused)} of {_NUM_REQUESTS} requests were refused"
    assert set(refused) <= {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "429"}, refused


def _in_thread(client: Client, arguments: dict[str, Any]) -> str:
    """Sends one request with a client of its own: the synchronous ones are for one thread."""

    async def one() -> str:
        async with Client(client.kind, client.url, client.grpc_address) as own:
            status, _ = await own.refusal("infer", "behave", [own.input("x", _X, "FP32")], **arguments)
            return status

    return asyncio.run(one())


CHECKS = {
    "a server that is not ready": ("3.1 routes", server_is_not_ready),
    "a model that is not ready": ("3.1 routes", model_is_not_ready),
    "repository index gives the reason": ("3.1 routes", index_gives_the_reason),
    "a model that cannot be loaded": ("3.2 statuses", model_cannot_be_loaded),
    "more requests than the server takes": ("3.2 statuses", too_many_requests),
    "disabled: all routes say so": ("3.5 shared memory", memory_is_disabled),
    "disabled: requests that use it": ("3.5 shared memory", inference_with_disabled_memory),
    "disabled: no extension": ("3.5 shared memory", memory_is_no_extension),
}


def add(table: Table, url: str, grpc_address: str) -> None:
    """Adds all checks for all four clients."""

    async def run(kind: str, check: Any) -> None:
        async with Client(kind, url, grpc_address) as client:
            await check(client)

    for kind in KINDS:
        for name, (section, check) in CHECKS.items():
            table.add(section, kind, name, partial(run, kind, check))
