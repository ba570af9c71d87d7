"""3.5: tensors in system shared memory, and the texts of its errors, by all four clients."""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import tritonclient.utils.shared_memory as shm
from clients import KINDS, Client
from rows import Table, expect
from tritonclient.utils import serialize_byte_tensor

_SECTION = "3.5 shared memory"
_X = np.arange(1000, dtype=np.float32)
_TEXTS = np.array([b"plain", b"", "zwölf €".encode(), b"z" * 400], dtype=object)
_NUM_BYTES = 64 * 2**10


@asynccontextmanager
async def region(client: Client, *, name: str | None = None) -> AsyncGenerator[tuple[str, str, Any]]:
    """Registers a segment of the client's own; yields its name, key and handle. The server must not remove it."""
    name = name or f"region-{uuid.uuid4().hex[:8]}"
    key = f"/test-{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region(name, key, _NUM_BYTES)
    try:
        await client.call("register_system_shared_memory", name, key, _NUM_BYTES)
        yield name, key, handle
        await client.call("unregister_system_shared_memory", name)
        expect(os.stat(f"/dev/shm{key}").st_size, _NUM_BYTES, "the size of the segment, which is the client's")
    finally:
        shm.destroy_shared_memory_region(handle)


async def _status(client: Client, name: str = "") -> dict[str, dict[str, Any]]:
    found = await client.call("get_system_shared_memory_status", name)
    if client.is_http:
        assert isinstance(found, list), f"the status is {found!r}, expected an array"
        return {one["name"]: one for one in found}
    return found.get("regions", {})


async def registration(client: Client) -> None:
    async with region(client) as (name, key, _):
        for found in (await _status(client, name), await _status(client)):
            one = found[name]
            expect((one["key"], int(one.get("offset", 0)), int(one["byte_size"])), (key, 0, _NUM_BYTES), "the region")
    assert name not in await _status(client), "still registered"


async def key_without_a_slash(client: Client) -> None:
    async with region(client) as (_, key, _):
        other = f"region-{uuid.uuid4().hex[:8]}"
        await client.call("register_system_shared_memory", other, key.removeprefix("/"), 16, 32)
        one = (await _status(client, other))[other]
        expect((int(one["offset"]), int(one["byte_size"])), (32, 16), "the region")
        await client.call("unregister_system_shared_memory", other)


async def in_and_out(client: Client) -> None:
    """Inputs and outputs are in shared memory, of fixed and of no fixed element size."""
    texts = serialize_byte_tensor(_TEXTS)
    num_text_bytes = len(texts.item())
    async with region(client) as (source, _, from_), region(client) as (target, _, to):
        shm.set_shared_memory_region(from_, [_X])
        shm.set_shared_memory_region(from_, [texts], offset=_X.nbytes)
        inputs = [
            client.shared_input("x", _X.shape, "FP32", source, _X.nbytes),
            client.shared_input("texts", _TEXTS.shape, "BYTES", source, num_text_bytes, _X.nbytes),
        ]
        outputs = [
            client.shared_output("raised", target, _X.nbytes),
            client.shared_output("reversed", target, num_text_bytes, _X.nbytes),
        ]
        result = await client.infer("mirror", inputs, outputs=outputs)
        _check_answer(client, result)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(to, np.float32, _X.shape), _X + 1)
        found = shm.get_contents_as_numpy(to, np.object_, _TEXTS.shape, offset=_X.nbytes)
        expect(found.tolist(), [text[::-1] for text in _TEXTS.tolist()], "the texts")


def _check_answer(client: Client, result: Any) -> None:
    """Checks that there are type and shape, but no data; over gRPC an empty entry for each output, so that entries and outputs
    stay in step.
    """
    raised = result.get_output("raised")
    if client.is_http:
        expect((raised["datatype"], raised["shape"], "data" in raised), ("FP32", [1000], False), "the answer")
        return
    expect((raised.datatype, list(raised.shape)), ("FP32", [1000]), "the answer")
    expect(list(result.get_response().raw_output_contents), [b"", b""], "raw_output_contents")


async def only_some(client: Client) -> None:
    """One input and one output are in shared memory, the others in the message."""
    async with region(client) as (name, _, handle):
        shm.set_shared_memory_region(handle, [_X])
        inputs = [client.shared_input("x", _X.shape, "FP32", name, _X.nbytes), client.input("texts", _TEXTS, "BYTES")]
        outputs = [client.shared_output("raised", name, _X.nbytes, 8192), client.output("reversed")]
        result = await client.infer("mirror", inputs, outputs=outputs)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, _X.shape, offset=8192), _X + 1)
        expect(result.as_numpy("reversed").tolist(), [text[::-1] for text in _TEXTS.tolist()], "the texts")


async def _expect_refusal(refusal: tuple[str, str], status: str, text: str) -> None:
    expect(refusal[0], status, f"the status ({refusal[1]})")
    assert text in refusal[1], f"{text!r} is not in {refusal[1]!r}"


async def registered_twice(client: Client) -> None:
    async with region(client) as (name, key, _):
        status, text = await client.refusal("register_system_shared_memory", name, key, 16)
        expect(text, f"shared memory region '{name}' already in manager", "the text")
        assert status in ("INVALID_ARGUMENT", "ALREADY_EXISTS"), status


async def unknown_object(client: Client) -> None:
    refusal = await client.refusal("register_system_shared_memory", "nobody", "/test-nothing", 16)
    await _expect_refusal(refusal, "INTERNAL", "Unable to open shared memory region: '/test-nothing'")


async def range_of_registration(client: Client) -> None:
    async with region(client) as (_, key, _):
        refusal = await client.refusal("register_system_shared_memory", "long", key, _NUM_BYTES, 1)
        await _expect_refusal(refusal, "INVALID_ARGUMENT", "'long'")


async def unknown_region(client: Client) -> None:
    await _expect_refusal(await client.refusal("get_system_shared_memory_status", "nobody"), "NOT_FOUND", "region: 'nobody'")
    inputs = [client.shared_input("x", _X.shape, "FP32", "nobody", _X.nbytes)]
    refusal = await client.refusal("infer", "behave", inputs)
    await _expect_refusal(refusal, "NOT_FOUND", "Unable to find shared memory region: 'nobody'")


async def range_of_request(client: Client) -> None:
    async with region(client) as (name, _, _):
        inputs = [client.shared_input("x", _X.shape, "FP32", name, _X.nbytes, _NUM_BYTES - 8)]
        text = f"Invalid offset + byte size for shared memory region: '{name}'"
        await _expect_refusal(await client.refusal("infer", "behave", inputs), "INVALID_ARGUMENT", text)


async def output_too_small(client: Client) -> None:
    async with region(client) as (name, _, _):
        outputs = [client.shared_output("output", name, 8)]
        refusal = await client.refusal("infer", "behave", [client.input("x", _X, "FP32")], outputs=outputs)
        text = "shared memory size specified with the request for output 'output' (8 bytes) should be at least 4000 bytes"
        await _expect_refusal(refusal, "INTERNAL", text)


async def cuda(client: Client) -> None:
    """Nothing is registered; asking for it, or unregistering all of it, gets an answer, and a handle that is none is refused."""
    found = await client.call("get_cuda_shared_memory_status")
    expect(found if client.is_http else found.get("regions", {}), [] if client.is_http else {}, "the regions")
    await client.call("unregister_cuda_shared_memory")
    status, text = await client.refusal("register_cuda_shared_memory", "cuda", b"aGFuZGxl", 0, 16)
    assert status in ("INVALID_ARGUMENT", "UNIMPLEMENTED"), f"{status}, {text!r}"


async def all_given_up(client: Client) -> None:
    async with region(client) as (name, _, _):
        await client.call("unregister_system_shared_memory")
        assert name not in await _status(client), "still registered"


CHECKS = {
    "registered, looked at, given up": registration,
    "a part of an object, its key without a slash": key_without_a_slash,
    "all tensors of a request in shared memory": in_and_out,
    "some tensors of a request in shared memory": only_some,
    "a name that is taken": registered_twice,
    "an object that is not there": unknown_object,
    "a range that is not in the object": range_of_registration,
    "a region that is not registered": unknown_region,
    "a range that is not in the region": range_of_request,
    "an output that does not fit": output_too_small,
    "all regions given up at once": all_given_up,
    "CUDA shared memory": cuda,
}


def add(table: Table, url: str, grpc_address: str) -> None:
    """Adds all checks for all four clients."""

    async def run(kind: str, check: Any) -> None:
        async with Client(kind, url, grpc_address) as client:
            await check(client)

    for kind in KINDS:
        for name, check in CHECKS.items():
            table.add(_SECTION, kind, name, partial(run, kind, check))
