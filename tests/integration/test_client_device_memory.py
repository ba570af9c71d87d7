# pyright: basic
# The generated messages have no types.
"""The CUDA shared memory extension, on a device whose memory is files, with clients that behave and clients that do not."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from jaxtyping import Float
from torch import Tensor

import dyorc
from dyorc.config import GatewayConfig
from dyorc.protocol import inference_pb2
from tests import oip, oip_grpc
from tests.conformance.models import mirror
from tests.conformance.servers import ROOT, TRITONCLIENT
from tests.counting_device import CountingDevice, counting_devices, handle_of
from tests.integration.stack import Stack, running
from tests.shared_folders import shared_object

pb: Any = inference_pb2
NUM = 40_000
"""How many numbers make a tensor too large to travel inline."""
ALLOWED = GatewayConfig(port=0, drain_timeout_s=1, allow_client_shm=True)


@dyorc.program(device="cuda")
def double(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
    """Doubles on the device."""
    return x * 2


@dyorc.workflow
async def doubled(x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Doubles."""
    return double(x)


@pytest.fixture(scope="module")
def devices() -> Any:
    """Puts devices whose memory is files in place of NVIDIA's."""
    with counting_devices(kind="cuda") as devices:
        yield devices


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None, devices: dict[int, CountingDevice]) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    async with running([mirror, doubled], gateway=ALLOWED, grpc=True) as stack:
        yield stack


def registration(path: Path, **changes: Any) -> dict[str, Any]:
    """Returns the body that registers a file as memory of the first device."""
    handle = base64.b64encode(handle_of(path.name)).decode()
    return {"raw_handle": {"b64": handle}, "device_id": 0, "byte_size": path.stat().st_size} | changes


async def register(stack: Stack, name: str, body: Any) -> httpx.Response:
    """Registers a region."""
    return await stack.client.post(f"/v2/cudasharedmemory/region/{name}/register", content=json.dumps(body))


@contextlib.asynccontextmanager
async def region(stack: Stack, num_bytes: int) -> AsyncGenerator[Path]:
    """Makes memory that is registered under its own name."""
    with shared_object(bytes(num_bytes)) as path:
        answer = await register(stack, path.name, registration(path))
        assert (answer.status_code, answer.content) == (200, b""), answer.text
        try:
            yield path
        finally:
            await stack.client.post(f"/v2/cudasharedmemory/region/{path.name}/unregister")


def place(path: Path, byte_size: int, offset: int = 0) -> dict[str, Any]:
    """Returns the parameters of a tensor in shared memory."""
    return {"shared_memory_region": path.name, "shared_memory_byte_size": byte_size, "shared_memory_offset": offset}


def body_of(path: Path, offset: int = 0, num: int = NUM) -> dict[str, Any]:
    """Returns a request whose input and output are in a region, one behind the other."""
    return {
        "inputs": [{"name": "x", "shape": [num], "datatype": "FP32", "parameters": place(path, 4 * num, offset)}],
        "outputs": [{"name": "output", "parameters": place(path, 4 * num, offset + 4 * num)}],
    }


async def infer(stack: Stack, body: Any, model: str = "doubled") -> httpx.Response:
    """Sends one request without binary data."""
    return await stack.client.post(f"/v2/models/{model}/infer", content=json.dumps(body))


@pytest.mark.parametrize("num", [3, NUM])
async def test_tensors_come_from_and_go_to_memory_of_a_device(stack: Stack, devices: dict[int, CountingDevice], num: int) -> None:
    x = np.arange(num, dtype=np.float32)
    async with region(stack, 8 * num + 4) as path:
        with path.open("r+b") as file:
            file.seek(4)
            file.write(x.tobytes())
        answer = await infer(stack, body_of(path, 4, num))
        assert answer.status_code == 200, answer.text
        (output,) = answer.json()["outputs"]
        assert "data" not in output
        assert output["parameters"] == place(path, 4 * num, 4 + 4 * num)
        np.testing.assert_array_equal(np.frombuffer(path.read_bytes()[4 + 4 * num :], np.float32), 2 * x)
        status = (await stack.client.get("/v2/cudasharedmemory/status")).json()
        assert status == [{"name": path.name, "device_id": 0, "byte_size": 8 * num + 4}]
        assert (await stack.client.get("/v2/systemsharedmemory/status")).json() == []
        await stack.client.post("/v2/systemsharedmemory/unregister")
        assert devices[0].num_open == 1
    assert devices[0].num_open == 0


async def test_a_region_stays_open_for_requests_in_flight(stack: Stack, devices: dict[int, CountingDevice]) -> None:
    async with region(stack, 8 * NUM) as path:
        path.write_bytes(np.ones(2 * NUM, np.float32).tobytes())
        asked = [asyncio.create_task(infer(stack, body_of(path))) for _ in range(4)]
        for answer in await asyncio.gather(*asked):
            assert answer.status_code == 200, answer.text
        await stack.client.post("/v2/cudasharedmemory/unregister")
        assert devices[0].num_open == 0
        answer = await infer(stack, body_of(path))
        assert (answer.status_code, oip.error_text(answer)) == (404, f"Unable to find shared memory region: '{path.name}'")


@pytest.mark.skipif(not TRITONCLIENT.exists(), reason="tritonclient has no environment; `make test` makes it")
async def test_tritonclient_shares_memory_of_a_device(stack: Stack, devices: dict[int, CountingDevice]) -> None:
    script = ROOT / "tests" / "conformance" / "device_memory.py"
    with shared_object(bytes(8 * NUM + 64)) as path:
        process = await asyncio.create_subprocess_exec(
            str(TRITONCLIENT), str(script), stack.client.base_url.netloc.decode(), stack.grpc_address, str(path),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
    assert devices[1].num_open == 0


HANDLE = {"b64": base64.b64encode(handle_of("nothing")).decode()}
BAD: list[tuple[Any, int, str]] = [
    ({}, 400, "Shared memory register request has no 'raw_handle' field"),
    ({"raw_handle": HANDLE, "device_id": 0}, 400, "Shared memory register request has no 'byte_size' field"),
    ({"raw_handle": HANDLE, "byte_size": 1}, 400, "Shared memory register request has no 'device_id' field"),
    ({"raw_handle": {"b64": "AAAA"}, "byte_size": 1, "device_id": 0}, 400, "'raw_handle' must be a valid base64 encoded cuda"),
    ({"raw_handle": {"b64": "?"}, "byte_size": 1, "device_id": 0}, 400, "'raw_handle' must be a valid base64 encoded cuda"),
    ({"raw_handle": HANDLE, "byte_size": 1, "device_id": -1}, 400, "device_id"),
    ({"raw_handle": HANDLE, "byte_size": 1, "device_id": 7}, 400, "'x', GPUs not supported: there is no device cuda:7"),
    ({"raw_handle": HANDLE, "byte_size": 1, "device_id": 0}, 500, "'x': failed to open CUDA IPC handle: invalid resource handle"),
]


@pytest.mark.parametrize(("body", "status", "text"), BAD)
async def test_what_cannot_be_registered_is_refused(stack: Stack, body: Any, status: int, text: str) -> None:
    answer = await register(stack, "x", body)
    assert answer.status_code == status, answer.text
    assert text in oip.error_text(answer)


async def test_a_size_and_a_name_are_checked(stack: Stack, devices: dict[int, CountingDevice]) -> None:
    async with region(stack, 64) as path:
        for size in (0, -1, 65):
            answer = await register(stack, "other", registration(path, byte_size=size))
            assert answer.status_code == 400
            assert f"invalid args: {size} bytes of memory that has 64" in oip.error_text(answer)
        answer = await register(stack, path.name, registration(path))
        assert oip.error_text(answer) == f"shared memory region '{path.name}' already in manager"
        answer = await stack.client.post(
            f"/v2/systemsharedmemory/region/{path.name}/register", content=json.dumps({"key": path.name, "byte_size": 1})
        )
        assert oip.error_text(answer) == f"shared memory region '{path.name}' already in manager"
        assert devices[0].num_open == 1
        answer = await infer(stack, body_of(path))
        assert oip.error_text(answer) == f"Invalid offset + byte size for shared memory region: '{path.name}'"


async def test_grpc_registers_and_refuses(stack: Stack, devices: dict[int, CountingDevice]) -> None:
    with shared_object(bytes(64)) as path:
        async with oip_grpc.connected(stack.grpc_address) as stub:
            request = pb.CudaSharedMemoryRegisterRequest(name="a", raw_handle=handle_of(path.name), device_id=1, byte_size=64)
            await stub.CudaSharedMemoryRegister(request)
            response = await stub.CudaSharedMemoryStatus(pb.CudaSharedMemoryStatusRequest())
            (entry,) = response.regions.values()
            assert (entry.name, entry.device_id, entry.byte_size) == ("a", 1, 64)
            error = await oip_grpc.refused(stub.CudaSharedMemoryRegister(request))
            assert (error.status, error.text) == ("ALREADY_EXISTS", "shared memory region 'a' already in manager")
            short = pb.CudaSharedMemoryRegisterRequest(name="b", raw_handle=b"short", byte_size=1)
            error = await oip_grpc.refused(stub.CudaSharedMemoryRegister(short))
            assert (error.status, error.text) == (
                "INVALID_ARGUMENT", "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
            )  # fmt: skip
            await stub.CudaSharedMemoryUnregister(pb.CudaSharedMemoryUnregisterRequest(name="a"))
            error = await oip_grpc.refused(stub.CudaSharedMemoryStatus(pb.CudaSharedMemoryStatusRequest(name="a")))
            assert (error.status, error.text) == ("NOT_FOUND", "Unable to find cuda shared memory region: 'a'")
    assert devices[1].num_open == 0
