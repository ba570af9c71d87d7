# pyright: basic
# Generated messages and stubs have no types.
"""Calls of `ModelInfer` that are answered without a task, as their messages are like one before: the same in everything else.

The tests of the protocol (`test_grpc_inference.py`) run over this server as well.
"""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dyorc.config import GatewayConfig
from dyorc.gateway.service import InferenceService
from dyorc.server.request_pipeline import grpc_server
from tests import oip_grpc
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.stack import running
from tests.kept_records import KeptRecords
from tests.workflows import arithmetic, slow, tensors

pytest.importorskip("ngh2")

_OWN = GatewayConfig(port=0, drain_timeout_s=1, grpc_server="nghttp2")
X = np.array([1.5, 2.5, 3.5, 4.5], np.float32)
INDEX = np.array([3, 0], np.int64)


def affine(x: Any = X) -> Any:
    return oip_grpc.request("affine", {"x": x, "index": INDEX})


def refuse_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every call fail that is not direct."""

    async def infer(*_: Any, **__: Any) -> None:
        raise AssertionError("it is not direct")

    monkeypatch.setattr(InferenceService, "infer", infer)


async def test_only_the_first_of_equal_messages_takes_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running([tensors.affine], gateway=_OWN, grpc=True) as stack, oip_grpc.connected(stack.grpc_address) as stub:
        first = await stub.ModelInfer(affine())
        refuse_tasks(monkeypatch)
        for x in (X, X + 1):
            answer = await stub.ModelInfer(affine(x))
            np.testing.assert_array_equal(oip_grpc.outputs_of(answer)["output"], x[INDEX])
        same = await stub.ModelInfer(affine())
        assert same == first
        error = await oip_grpc.refused(stub.ModelInfer(oip_grpc.request("affine", {"x": X, "index": INDEX}, factor=2.0)))
        assert error.status == "INTERNAL", "another message is not direct"
        await wait_until_async(lambda: not stack.service.admission.num_requests, "all tickets are back")


async def test_ids_and_records_are_those_of_any_call() -> None:
    recorder = KeptRecords()
    async with (
        running([tensors.affine], gateway=_OWN, grpc=True, recorder=recorder) as stack,
        oip_grpc.connected(stack.grpc_address) as stub,
    ):
        for name in ("a-1", "a-2"):
            call = stub.ModelInfer(affine(), metadata=(("x-request-id", name),))
            await call
            assert dict(await call.trailing_metadata())["x-request-id"] == name
        call = stub.ModelInfer(affine())
        await call
        assert "x-request-id" not in dict(await call.trailing_metadata())
    assert [record.origin.request_id for record in recorder.records[:2]] == ["a-1", "a-2"]
    first, second, third = [record.origin for record in recorder.records]
    assert third.request_id not in ("", "a-1", "a-2")
    assert first.transport == second.transport == "grpc"
    assert first.num_bytes == second.num_bytes == len(affine().SerializeToString())
    for origin in (first, second, third):
        assert 0 < origin.arrived_ns <= origin.read_ns <= origin.written_ns


async def test_errors_are_those_of_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = KeptRecords()
    async with running([tensors.affine], gateway=_OWN, grpc=True, recorder=recorder) as stack:
        async with oip_grpc.connected(stack.grpc_address) as stub:
            nan = affine(np.full(4, np.nan, np.float32))
            before = await oip_grpc.refused(stub.ModelInfer(nan))
            await stub.ModelInfer(affine())
            refuse_tasks(monkeypatch)
            after = await oip_grpc.refused(stub.ModelInfer(nan))
            outside = await oip_grpc.refused(stub.ModelInfer(oip_grpc.request("affine", {"x": X, "index": INDEX + 9})))
            await stub.ModelInfer(affine())
        assert (before.status, before.text, before.code) == (after.status, after.text, after.code)
        assert after.status == "INVALID_ARGUMENT"
        assert after.request_id
        assert outside.code == "program"
        await wait_until_async(lambda: not stack.service.admission.num_requests, "all tickets are back")
    assert [record.outcome for record in recorder.records] == ["invalid_input", "ok", "invalid_input", "program", "ok"]


async def test_the_limits_of_admission_hold() -> None:
    async with running([tensors.affine], gateway=_OWN, grpc=True) as stack, oip_grpc.connected(stack.grpc_address) as stub:
        await stub.ModelInfer(affine())
        admission: Any = stack.service.admission
        admission._max_requests = 0
        error = await oip_grpc.refused(stub.ModelInfer(affine()))
        assert error.status == "RESOURCE_EXHAUSTED"
        admission._max_requests = 1
        await stub.ModelInfer(affine())


def gated(folder: Path) -> Any:
    return oip_grpc.request("gated", {"x": X}, folder=str(folder))


async def _learn(stub: Any, folder: Path) -> None:
    """Has a request of `gated` answered, so that the next ones are direct."""
    (folder / "open").touch()
    await stub.ModelInfer(gated(folder))
    (folder / "open").unlink()


async def test_a_call_that_is_cancelled_or_out_of_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running([slow.gated], gateway=_OWN, grpc=True) as stack, oip_grpc.connected(stack.grpc_address) as stub:
        await _learn(stub, tmp_path)
        refuse_tasks(monkeypatch)
        error = await oip_grpc.refused(stub.ModelInfer(gated(tmp_path), timeout=0.3))
        assert error.status == "DEADLINE_EXCEEDED"
        call = stub.ModelInfer(gated(tmp_path))
        await wait_until_async(lambda: stack.orchestrator.num_requests == 1, "it has come")
        call.cancel()
        await wait_until_async(lambda: stack.orchestrator.num_requests == 0, "it is gone")
        assert not stack.service.admission.num_requests
        (tmp_path / "open").touch()


@pytest.mark.parametrize("waits", [True, False])
async def test_a_server_that_stops_waits_for_direct_calls(waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        running([slow.gated]) as stack,
        grpc_server(stack.service, _OWN) as server,
        oip_grpc.connected(server.address) as stub,
    ):
        await _learn(stub, tmp_path)
        refuse_tasks(monkeypatch)
        call = asyncio.ensure_future(_status(stub.ModelInfer(gated(tmp_path))))
        await wait_until_async(lambda: stack.orchestrator.num_requests == 1, "it has come")
        stopping = asyncio.create_task(server.drain(TIMEOUT_S if waits else 0))
        await asyncio.sleep(0)
        if waits:
            assert not stopping.done()
            (tmp_path / "open").touch()
        await stopping
        assert await call == ("OK" if waits else "CANCELLED")
        (tmp_path / "open").touch()
        await wait_until_async(lambda: not stack.service.admission.num_requests, "all tickets are back")


async def _status(call: Any) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def test_many_calls_on_one_connection_are_answered_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running([arithmetic.quadruple], gateway=_OWN, grpc=True) as stack, oip_grpc.connected(stack.grpc_address) as stub:
        await stub.ModelInfer(oip_grpc.request("quadruple", {"x": X}))
        refuse_tasks(monkeypatch)
        xs = [X + number for number in range(200)]
        answers = await asyncio.gather(*[stub.ModelInfer(oip_grpc.request("quadruple", {"x": x})) for x in xs])
    for x, answer in zip(xs, answers, strict=True):
        np.testing.assert_array_equal(oip_grpc.outputs_of(answer)["output"], 4 * x)


async def test_direct_calls_open_the_connections_window_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they have more bytes than a client may send before the server has said that they were read."""
    x = np.ones(3900, np.float32)
    async with (
        running([arithmetic.sums], gateway=_OWN, grpc=True) as stack,
        oip_grpc.connected(stack.grpc_address) as stub,
        asyncio.timeout(TIMEOUT_S),
    ):
        message = oip_grpc.request("sums", {"x": x})
        await stub.ModelInfer(message)
        refuse_tasks(monkeypatch)
        for _ in range(2 * 4 * 2**20 // x.nbytes):
            await stub.ModelInfer(message)
