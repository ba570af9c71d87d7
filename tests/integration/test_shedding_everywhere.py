# pyright: basic
# Generated messages and stubs have no types.
"""Requests that cannot be answered in time are refused over gRPC, on streams, and where only the body names a limit."""

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from dyorc.config import GatewayConfig
from dyorc.gateway.grpc.grpc_server import GrpcServer
from dyorc.gateway.grpc.inference_calls import ModelInfer
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.service import InferenceService
from dyorc.gateway.shedding import LoopLag, Shedding
from dyorc.models.registry import ModelRegistry
from tests import oip, oip_grpc
from tests.fake_backend import FakeBackend
from tests.slow_loops import Loop, busy
from tests.workflows import arithmetic, streaming

X = np.array([1, 2, 3, 4], np.float32)
TURN_S = 10.0
"""So an answer takes a minute."""
SOON_S, LATER_S = 30.0, 100_000.0
SOON_US, LATER_US = round(SOON_S * 1e6), round(LATER_S * 1e6)


@dataclass
class Served:
    """A server, whose loop is behind if the test says so."""

    backend: FakeBackend
    service: InferenceService
    client: httpx.AsyncClient
    stub: Any

    def fall_behind(self) -> None:
        """Makes each turn of the loop seem to take `TURN_S` from now on."""
        loop = Loop()
        lag = LoopLag(loop.clock_s, loop.call_soon)
        busy(loop, lag, *[TURN_S] * 4)
        self.service.shedding = Shedding(lag)


@pytest.fixture
async def served(leaves_nothing: None) -> AsyncIterator[Served]:
    """Serves two models, one of which streams."""
    repertoire = ModelRegistry.of([arithmetic.quadruple, streaming.count_up])
    backend = FakeBackend(repertoire, lambda workflow, inputs: [[X]])
    config = GatewayConfig(port=0, drain_timeout_s=1)
    with contextlib.closing(InferenceService(backend, config)) as service:
        async with (
            HttpServer(Gateway(service), config, service.shedding) as server,
            GrpcServer(service, config) as grpc_server,
            httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as client,
            oip_grpc.connected(grpc_server.address) as stub,
        ):
            yield Served(backend, service, client, stub)


def quadruple(request_id: str = "", **parameters: Any) -> Any:
    """Returns a good request."""
    return oip_grpc.request("quadruple", {"x": X}, request_id=request_id, **parameters)


async def test_a_call_that_cannot_meet_its_deadline_is_refused_before_any_work(served: Served) -> None:
    served.fall_behind()
    unknown = oip_grpc.request("nobody", {"x": X})
    refused = await oip_grpc.refused(served.stub.ModelInfer(unknown, timeout=SOON_S))
    assert (refused.status, refused.code, refused.is_retryable, refused.retry_ms) == (
        "UNAVAILABLE",
        "overloaded",
        "true",
        "60000",
    )
    assert "busy" in refused.text
    for timeout_s in (None, LATER_S):
        assert oip_grpc.outputs_of(await served.stub.ModelInfer(quadruple(), timeout=timeout_s)).keys() == {"output"}


async def test_the_limit_of_requests_that_name_none_counts_too(served: Served) -> None:
    served.fall_behind()
    served.backend.default_timeout_s = SOON_S
    refused = await oip_grpc.refused(served.stub.ModelInfer(quadruple()))
    assert (refused.status, refused.code) == ("UNAVAILABLE", "overloaded")
    answer = await served.client.post(
        "/v2/models/quadruple/infer", content=(body := oip.binary_body({"x": X})).content, headers=body.headers
    )
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "40")
    later = quadruple(timeout=LATER_US)
    assert oip_grpc.outputs_of(await served.stub.ModelInfer(later)).keys() == {"output"}, "its own limit is longer"
    served.backend.default_timeout_s = LATER_S
    assert oip_grpc.outputs_of(await served.stub.ModelInfer(quadruple())).keys() == {"output"}
    assert served.backend.seen[-1].deadline_ns is not None, "its time counts from its first byte"


async def test_requests_of_a_stream_are_refused_one_by_one(served: Served) -> None:
    served.fall_behind()
    call = served.stub.ModelStreamInfer(timeout=LATER_S)
    for request_id, timeout_us in (("soon", SOON_US), ("later", LATER_US), ("", SOON_US), ("", LATER_US)):
        await call.write(quadruple(request_id, timeout=timeout_us))
        answer = await call.read()
        assert answer.infer_response.id == request_id
        assert ("the server is busy" in answer.error_message) == (timeout_us == SOON_US)
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert len(served.backend.seen) == 2


async def test_requests_on_a_stream_that_ends_too_soon_are_refused(served: Served) -> None:
    served.fall_behind()
    call = served.stub.ModelStreamInfer(timeout=SOON_S)
    await call.write(oip_grpc.request("nobody", {"x": X}, request_id="a"))
    assert "the server is busy" in (await call.read()).error_message
    call.cancel()


async def test_a_limit_in_the_body_applies_over_grpc(served: Served) -> None:
    served.fall_behind()
    refused = await oip_grpc.refused(served.stub.ModelInfer(quadruple(timeout=SOON_US)))
    assert (refused.status, refused.code, refused.is_retryable, refused.retry_ms) == (
        "UNAVAILABLE",
        "overloaded",
        "true",
        "40000",
    )
    await served.stub.ModelInfer(quadruple(timeout=LATER_US))
    assert len(served.backend.seen) == 1


@pytest.mark.parametrize("route", ["quadruple/infer", "count_up/infer_stream"])
@pytest.mark.parametrize("is_binary", [True, False])
async def test_a_limit_in_the_body_applies_over_http(served: Served, route: str, is_binary: bool) -> None:
    served.fall_behind()
    for timeout_us, status in ((SOON_US, 503), (LATER_US, 200)):
        parameters = {"timeout": timeout_us, **({} if route == "quadruple/infer" else {"num_parts": 1})}
        make = oip.binary_body if is_binary else oip.json_body
        body = make({"x": X if route == "quadruple/infer" else X[:2]}, parameters=parameters)
        answer = await served.client.post(f"/v2/models/{route}", content=body.content, headers=body.headers)
        assert answer.status_code == status, answer.text
        if status == 503:
            assert (answer.json()["code"], answer.json()["retryable"], answer.headers["Retry-After"]) == (
                "overloaded",
                True,
                "40",
            )
    assert len(served.backend.seen) == 1


class Context:
    """The context of a call whose deadline is `left_s` away."""

    def __init__(self, left_s: float | None) -> None:
        self.left_s = left_s
        self.aborted: tuple[Any, ...] = ()

    def time_remaining(self) -> float | None:
        return self.left_s

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def set_trailing_metadata(self, metadata: Any) -> None:
        self.trailing = metadata

    async def abort(self, *why: Any) -> None:
        self.aborted = why
        raise grpc.aio.AbortError


async def test_a_limit_in_the_body_counts_from_when_the_call_was_accepted(served: Served) -> None:
    infer = ModelInfer(served.service)
    arrived_ns = time.monotonic_ns() - round(SOON_S * 1e9)
    await infer.answer(arrived_ns, quadruple(timeout=LATER_US).SerializeToString(), Context(None))
    assert served.backend.seen[-1].deadline_ns == arrived_ns + round(LATER_S * 1e9)
    context = Context(None)
    with pytest.raises(grpc.aio.AbortError):
        await infer.answer(arrived_ns, quadruple(timeout=SOON_US).SerializeToString(), context)
    assert context.aborted[0] is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_deadline_is_no_earlier_than_the_client_set_it(served: Served) -> None:
    arrived_ns = time.monotonic_ns() - round(SOON_S * 1e9)
    before_ns = time.monotonic_ns()
    await ModelInfer(served.service).answer(arrived_ns, quadruple().SerializeToString(), Context(SOON_S))
    deadline_ns = served.backend.seen[-1].deadline_ns
    assert deadline_ns is not None
    assert before_ns <= deadline_ns - round(SOON_S * 1e9) <= time.monotonic_ns()


async def test_a_call_whose_time_is_up_when_it_is_read_gets_deadline_exceeded(served: Served) -> None:
    served.fall_behind()
    context = Context(0.0)
    with pytest.raises(grpc.aio.AbortError):
        await ModelInfer(served.service).answer(time.monotonic_ns(), b"not even read", context)
    assert context.aborted[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    assert served.backend.seen == []
