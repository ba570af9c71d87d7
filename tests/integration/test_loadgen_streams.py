"""The load generator asks for answers in parts: over HTTP, over gRPC, and of servers with a protocol of their own."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from loadgen.errors import WorkerFailedError
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.report.page import page
from loadgen.run import run
from loadgen.targets.base import TargetSpec
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic

Vector = Float[np.ndarray, "4"]
LOAD = Load(rate_rps=30, warm_up_s=0.2, duration_s=1.0)
X = np.arange(4, dtype=np.float32)


@dyorc.program(batched=False, max_ongoing=16)
async def grow(x: Vector) -> AsyncIterator[Vector]:
    """Yields its input three times, a little later each, and fails then if it is negative."""
    for number in range(1, 4):
        await asyncio.sleep(0.02)
        yield x * number
    if x[0] < 0:
        raise ValueError("no more")


@dyorc.workflow
async def growing(x: Vector) -> AsyncIterator[Vector]:
    async for part in grow(x):
        yield part


def spec(protocol: str, stack: Stack, model: str = "growing") -> TargetSpec:
    url = stack.grpc_address if protocol == "grpc" else str(stack.client.base_url)
    return TargetSpec(protocol=protocol, url=url, model=model, is_streamed=True)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("num_clients", [0, 4])
async def test_parts_are_checked_and_timed(protocol: str, num_clients: int) -> None:
    pool = Pool(inputs=[{"x": X}], answers=[{"output": np.stack([X, 2 * X, 3 * X])}])
    load = LOAD if not num_clients else Load(arrivals="closed", num_clients=num_clients, warm_up_s=0.2, duration_s=1.0)
    async with running([growing], grpc=True) as stack:
        result = await asyncio.to_thread(run, protocol, spec(protocol, stack), pool, load)

    assert (result.counts.correct, result.first_wrong, result.errors) == (result.counts.planned, "", {})
    assert result.parts is not None
    assert result.parts.num_parts == 3 * result.counts.planned > 0
    assert result.parts.first_part_ms.p50 >= 20
    assert result.parts.between_parts_ms is not None
    assert result.parts.between_parts_ms.p50 >= 10
    assert result.latency_ms.p50 >= result.parts.first_part_ms.p50 + 30
    assert result.parts.parts_per_s > 0
    assert "Parts of streams" in page([result])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_an_error_after_parts_and_a_wrong_part_count(protocol: str) -> None:
    right = np.stack([X, 2 * X, 3 * X])
    pool = Pool(inputs=[{"x": -1 - X}, {"x": X}], answers=[{"output": right}, {"output": right + 1}])
    async with running([growing], grpc=True) as stack:
        result = await asyncio.to_thread(run, protocol, spec(protocol, stack), pool, LOAD)

    assert result.counts.failed > 0
    assert result.counts.wrong > 0
    assert result.counts.failed + result.counts.wrong == result.counts.planned
    assert "in the stream" in next(iter(result.errors))
    assert "output 'output' is" in result.first_wrong
    assert result.parts is not None
    assert result.parts.num_parts == 3 * result.counts.planned


async def test_a_model_that_does_not_stream_has_one_part() -> None:
    pool = Pool(inputs=[{"x": X}], answers=[{"output": 4 * X[None]}])
    async with running([arithmetic.quadruple]) as stack:
        result = await asyncio.to_thread(run, "one", spec("http", stack, "quadruple"), pool, LOAD)

    assert result.counts.correct == result.counts.planned
    assert result.parts is not None
    assert (result.parts.num_parts, result.parts.between_parts_ms) == (result.counts.planned, None)


async def test_parts_of_another_protocol_end_as_its_codec_says() -> None:
    async with running([growing]) as stack:
        raw = TargetSpec(
            protocol="raw", url=str(stack.client.base_url), codec="tests.integration.event_codec",
            model="/v2/models/growing/infer_stream", headers={"content-type": "application/json"}, is_streamed=True,
        )  # fmt: skip
        pool = Pool(inputs=[{"x": X}], answers=[{"output": np.stack([X, 2 * X, 3 * X])}])
        result = await asyncio.to_thread(run, "events", raw, pool, LOAD)

    assert (result.counts.correct, result.first_wrong, result.errors) == (result.counts.planned, "", {})
    assert result.parts is not None
    assert result.parts.num_parts == 3 * result.counts.planned


async def test_a_target_without_streams_is_refused() -> None:
    plain = TargetSpec(protocol="tests.integration.plain_codec:open_own", url="", is_streamed=True, options={"fails": []})
    with pytest.raises(WorkerFailedError, match="OwnTarget has no method stream"):
        await asyncio.to_thread(run, "plain", plain, Pool(inputs=[{"x": X}]), LOAD)
