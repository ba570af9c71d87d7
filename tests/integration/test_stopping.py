"""In which order a server stops what it consists of."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dyorc.config import GatewayConfig, Settings
from dyorc.deployment.loaded_versions import ServerRuntime
from dyorc.server import single_process as embedded
from tests import oip, oip_grpc
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.server_process import target
from tests.shared_folders import arena_folder


def _settings(folder: Path, drain_timeout_s: float = TIMEOUT_S) -> Settings:
    settings = Settings(store=f"sqlite://{folder}/store.db", gateway=GatewayConfig(port=0, drain_timeout_s=drain_timeout_s))
    return settings.model_copy(update={"transport": settings.transport.model_copy(update={"arena_folder": arena_folder()})})


async def _post(url: str, folder: Path) -> httpx.Response:
    """Asks for a workflow whose effect waits for a file `open`."""
    inputs = [oip.json_tensor("x", np.full(4, 7, np.float32))]
    body: dict[str, Any] = {"inputs": inputs, "parameters": {"folder": str(folder)}}
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
        return await client.post(f"{url}/v2/models/once/infer", json=body)


async def _until_refused(url: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        with contextlib.suppress(httpx.ConnectError):
            while True:
                async with httpx.AsyncClient(trust_env=False) as client:
                    await client.get(f"{url}/v2/health/live")


async def _until_running(folder: Path) -> None:
    await wait_until_async((folder / "runs").exists, "the program runs")


def test_nobody_is_let_in_while_the_start_of_ray_cannot_be_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_programs = embedded.run_programs

    async def run() -> None:
        has_begun, may_end = asyncio.Event(), asyncio.Event()

        async def deploy() -> None:
            has_begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await may_end.wait()  # like a thread, it does not heed that it is cancelled

        @contextlib.asynccontextmanager
        async def slow_to_deploy(*arguments: Any, **options: Any) -> AsyncGenerator[ServerRuntime]:
            async with run_programs(*arguments, **options) as running:
                yield replace(running, deploy=deploy)

        monkeypatch.setattr(embedded, "run_programs", slow_to_deploy)
        stack = contextlib.AsyncExitStack()
        targets = [target("effects", "once")]
        server = await stack.enter_async_context(embedded.serve_embedded(targets, _settings(tmp_path), without_ray=True))
        await has_begun.wait()
        closing = asyncio.create_task(stack.aclose())
        await _until_refused(server.url)
        assert not closing.done()
        may_end.set()
        await closing

    asyncio.run(run())


def test_http_lets_nobody_in_while_a_call_by_grpc_is_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        stack = contextlib.AsyncExitStack()
        targets = [target("effects", "once")]
        server = await stack.enter_async_context(embedded.serve_embedded(targets, _settings(tmp_path), without_ray=True))
        async with oip_grpc.connected(server.grpc_address) as stub:
            request = oip_grpc.request("once", {"x": np.full(4, 7, np.float32)}, folder=str(tmp_path))
            call = stub.ModelInfer(request, timeout=TIMEOUT_S)
            await _until_running(tmp_path)
            closing = asyncio.create_task(stack.aclose())
            await _until_refused(server.url)
            assert not closing.done()
            (tmp_path / "open").touch()
            assert oip_grpc.outputs_of(await call)["output"].tolist() == [8.0] * 4
            await closing

    asyncio.run(run())


def test_who_hurries_does_not_wait_for_requests(tmp_path: Path) -> None:
    async def run() -> None:
        hurry = asyncio.Event()
        stack = contextlib.AsyncExitStack()
        server = await stack.enter_async_context(
            embedded.serve_embedded([target("effects", "once")], _settings(tmp_path, 3600.0), without_ray=True, hurry=hurry)
        )
        asking = asyncio.create_task(_post(server.url, tmp_path))
        await _until_running(tmp_path)
        closing = asyncio.create_task(stack.aclose())
        await _until_refused(server.url)
        hurry.set()
        given_up = await asking
        assert given_up.status_code == 503
        assert "the server stops" in given_up.json()["error"]
        assert given_up.json()["retryable"] is False, "its effect has begun, and would happen twice"
        (tmp_path / "open").touch()  # the batch itself cannot be broken off
        await closing

    asyncio.run(run())
