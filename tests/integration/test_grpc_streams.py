# pyright: basic
# Generated messages and stubs have no types.
"""`ModelStreamInfer` over gRPC: many requests on one stream, answers in parts, slow clients, and ends of all kinds."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dyorc.config import GatewayConfig
from dyorc.errors import DyOrcError, ProgramError
from dyorc.gateway.grpc import inference_calls
from tests import oip, oip_grpc
from tests.deadlines import wait_until_async
from tests.integration.grpc_servers import GRPC_SERVERS
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, slow, tensors

TARGETS = [tensors.affine, arithmetic.sums, slow.gated]
GATEWAY = GatewayConfig(port=0, drain_timeout_s=5)
X = np.array([1.5, 2.5, 3.5, 4.5], np.float32)
INDEX = np.array([3, 0], np.int64)


@pytest.fixture(params=GRPC_SERVERS)
async def stack(leaves_nothing: None, request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """Starts one server for each test, since some stop it."""
    async with running(TARGETS, gateway=GATEWAY.model_copy(update={"grpc_server": request.param}), grpc=True) as found:
        yield found


@pytest.fixture
async def stream(stack: Stack) -> AsyncIterator[Any]:
    """Opens a stream on a separate connection."""
    async with oip_grpc.connected(stack.grpc_address) as stub:
        call = stub.ModelStreamInfer()
        yield call
        call.cancel()


def affine(request_id: str = "", **parameters: Any) -> Any:
    """Returns a good request."""
    return oip_grpc.request("affine", {"x": X, "index": INDEX}, request_id=request_id, **parameters)


def gated(folder: Path, number: int, request_id: str) -> Any:
    """Returns a request that waits until a file `open` exists."""
    return oip_grpc.request("gated", {"x": np.full(4, number, np.float32)}, request_id=request_id, folder=str(folder))


def is_final(answer: Any) -> bool:
    """Returns whether an answer was its request's last."""
    return answer.infer_response.parameters["triton_final_response"].bool_param


class Parts:
    """In place of a workflow that answers in parts: counts what is asked of it, and notices when it is closed."""

    def __init__(self, lists: list[list[int]], error: DyOrcError | None = None, num_numbers: int = 4) -> None:
        self.lists = lists
        self.error = error
        self.num_numbers = num_numbers
        self.num_asked = 0
        self.num_closed = 0

    async def stream(self, *_: Any, take: Callable[[list[oip.Array]], Any], **__: Any) -> AsyncGenerator[list[Any]]:
        try:
            for numbers in self.lists:
                self.num_asked += 1
                yield [take([np.full(self.num_numbers, number, np.float32)]) for number in numbers]
                await asyncio.sleep(0)
            if self.error is not None:
                raise self.error
        finally:
            self.num_closed += 1


def install(parts: Parts, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `affine` answer in these parts."""
    monkeypatch.setitem(vars(stack.service.catalog.model("affine")), "is_streaming", True)
    monkeypatch.setattr(stack.service, "stream", parts.stream)


async def test_many_requests_on_one_stream_are_told_apart_by_their_ids(stream: Any) -> None:
    for number in range(100):
        await stream.write(affine(f"id-{number}", factor=float(number)))
    await stream.done_writing()
    found: dict[str, float] = {}
    async for answer in stream:
        assert (answer.error_message, is_final(answer)) == ("", True)
        found[answer.infer_response.id] = float(oip_grpc.outputs_of(answer.infer_response)["output"][1])
    assert found == {f"id-{number}": 1.5 * number for number in range(100)}
    assert (await stream.code()) is grpc.StatusCode.OK


async def test_an_answer_does_not_wait_for_an_earlier_request(stream: Any, tmp_path: Path) -> None:
    await stream.write(gated(tmp_path, 1, "slow"))
    await stream.write(affine("quick"))
    assert (await stream.read()).infer_response.id == "quick"
    (tmp_path / "open").touch()
    assert (await stream.read()).infer_response.id == "slow"


async def test_requests_without_ids_are_answered_in_their_order(stream: Any, tmp_path: Path) -> None:
    await stream.write(gated(tmp_path, 1, ""))
    await stream.write(oip_grpc.request("nix", {}))
    await stream.write(affine(factor=2.0))
    await stream.write(affine("named"))
    assert (await stream.read()).infer_response.id == "named"
    (tmp_path / "open").touch()
    first, second, third = [await stream.read() for _ in range(3)]
    assert first.infer_response.model_name == "gated"
    assert "unknown model 'nix'" in second.error_message
    np.testing.assert_array_equal(oip_grpc.outputs_of(third.infer_response)["output"], X[INDEX] * 2)


async def test_a_request_that_fails_leaves_the_stream_as_it_is(stream: Any, stack: Stack) -> None:
    await stream.write(affine("bad", colour="red"))
    answer = await stream.read()
    assert "no parameter 'colour'" in answer.error_message
    assert (answer.infer_response.id, answer.infer_response.model_name, is_final(answer)) == ("bad", "affine", True)
    await stream.write(affine("good"))
    assert oip_grpc.outputs_of((await stream.read()).infer_response)["output"].tolist() == X[INDEX].tolist()
    async with oip_grpc.connected(stack.grpc_address) as stub:
        raw = stub.channel.stream_stream(f"{oip_grpc.METHOD}ModelStreamInfer")()
        await raw.write(b"\xff\xff")
        assert b"not a ModelInferRequest" in await raw.read()
        await raw.write(affine("good").SerializeToString())
        assert b"good" in await raw.read()
        raw.cancel()


async def test_an_answer_in_parts_is_several_responses(stream: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts([[1], [2, 3]])
    install(parts, stack, monkeypatch)
    await stream.write(affine("a"))
    answers = [await stream.read() for _ in range(3)]
    assert [float(oip_grpc.outputs_of(answer.infer_response)["output"][0]) for answer in answers] == [1, 2, 3]
    assert {(answer.infer_response.id, is_final(answer)) for answer in answers} == {("a", False)}
    await stream.write(affine("b", triton_enable_empty_final_response=True))
    answers = [await stream.read() for _ in range(4)]
    assert [is_final(answer) for answer in answers] == [False, False, False, True]
    last = answers[-1].infer_response
    assert (last.id, last.model_name, len(last.outputs), len(last.raw_output_contents)) == ("b", "affine", 0, 0)
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert parts.num_closed == 2


async def test_an_error_after_the_first_part_ends_only_its_request(
    stream: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(Parts([[1]], ProgramError("p", "ValueError", "no")), stack, monkeypatch)
    await stream.write(affine("a"))
    assert not is_final(await stream.read())
    answer = await stream.read()
    assert (answer.error_message, answer.infer_response.id) == ("program 'p' failed: ValueError: no", "a")
    assert answer.infer_response.parameters["request_id"].string_param == "a"
    assert is_final(answer)
    await stream.write(oip_grpc.request("sums", {"x": X}, request_id="other"))
    assert (await stream.read()).infer_response.id == "other"


async def test_one_answer_of_a_model_that_answers_in_parts_is_refused(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    install(Parts([[1]]), stack, monkeypatch)
    async with oip_grpc.connected(stack.grpc_address) as stub:
        error = await oip_grpc.refused(stub.ModelInfer(affine()))
    assert (error.status, error.code) == ("UNIMPLEMENTED", "unsupported")


async def test_no_parts_are_made_for_a_client_that_does_not_read(
    stream: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts([[number] for number in range(2000)], num_numbers=50_000)
    install(parts, stack, monkeypatch)
    await stream.write(affine("a"))
    first = await stream.read()
    assert not is_final(first)
    asked = [-1]

    def stands_still() -> bool:
        asked.append(parts.num_asked)
        return len(asked) > 50 and asked[-50] == asked[-1]

    await wait_until_async(stands_still, "no more parts are asked for")
    assert parts.num_asked < 500, "400 MB would be on their way"
    for _ in range(1999):
        assert await stream.read() is not grpc.aio.EOF
    assert parts.num_asked == 2000


async def test_a_stream_takes_a_limited_number_of_requests_at_once(
    stream: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = inference_calls._MAX_IN_FLIGHT
    for number in range(limit + 20):
        await stream.write(gated(tmp_path, number, str(number)))
    await wait_until_async(lambda: stack.orchestrator.num_requests == limit, "as many as may be")
    for _ in range(20):
        await asyncio.sleep(0.005)
        assert stack.orchestrator.num_requests == limit
    (tmp_path / "open").touch()
    assert {(await stream.read()).infer_response.id for _ in range(limit + 20)} == {str(n) for n in range(limit + 20)}


async def test_cancelling_a_stream_cancels_its_requests_at_once(
    stream: Any, stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(5):
        await stream.write(gated(tmp_path, number, str(number)))
    await wait_until_async(lambda: (tmp_path / "started-0").exists() and stack.orchestrator.num_requests == 5, "one runs")
    stream.cancel()
    await wait_until_async(lambda: stack.orchestrator.num_requests == 0, "all are gone")
    (tmp_path / "open").touch()
    assert not (tmp_path / "started-4").exists()
    parts = Parts([[number] for number in range(10**6)])
    install(parts, stack, monkeypatch)
    async with oip_grpc.connected(stack.grpc_address) as stub:
        call = stub.ModelStreamInfer()
        await call.write(affine("a"))
        await call.read()
        call.cancel()
        await wait_until_async(lambda: parts.num_closed == 1, "the workflow is closed")


async def test_a_stop_answers_what_has_come_and_does_not_wait_for_idle_streams(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def serve(stop: asyncio.Event, address: "asyncio.Future[Stack]") -> float:
        async with running(TARGETS, gateway=GatewayConfig(port=0, drain_timeout_s=60), grpc=True) as stack:
            address.set_result(stack)
            await stop.wait()
            (tmp_path / "open").touch()
            started.set()
        return asyncio.get_running_loop().time()

    stop = asyncio.Event()
    found: asyncio.Future[Stack] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(stop, found))
    stack = await found
    async with oip_grpc.connected(stack.grpc_address) as stub:
        idle, busy = stub.ModelStreamInfer(), stub.ModelStreamInfer()
        await idle.write(affine("a"))
        assert (await idle.read()).infer_response.id == "a"
        await busy.write(gated(tmp_path, 1, "b"))
        await wait_until_async(lambda: (tmp_path / "started-1").exists(), "it runs")
        stop.set()
        assert (await busy.read()).infer_response.id == "b"
        assert await busy.read() is grpc.aio.EOF
        assert await idle.read() is grpc.aio.EOF
        assert (await idle.code(), await busy.code()) == (grpc.StatusCode.OK, grpc.StatusCode.OK)
        async with asyncio.timeout(30):
            await serving
    with contextlib.suppress(asyncio.CancelledError):
        await started.wait()
