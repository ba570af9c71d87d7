"""Streaming workflows on real replicas: parts come as they are made, and no faster than they are taken."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import numpy as np
import pytest

from dyorc.config import EngineConfig
from dyorc.core.arrays import Array
from dyorc.errors import DeadlineError, ProgramError
from dyorc.telemetry.record import Origin
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running, within
from tests.workflows import streaming

MAX_UNTAKEN = 3
X = np.array([20, 21], np.float32)
SEED = np.array([7], np.float32)


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    engine = EngineConfig(max_untaken_parts=MAX_UNTAKEN)
    async with running([streaming.count_up, streaming.count_up_to_10, streaming.ramps], engine=engine) as found:
        yield found


@pytest.fixture(autouse=True)
async def leaves_no_request(stack: Stack) -> AsyncIterator[None]:
    """Checks that, however a stream ends, the engine forgets it and all memory is free."""
    streaming.made.clear()
    yield
    engine = stack.orchestrator._engine  # pyright: ignore[reportPrivateUsage]
    await wait_until_async(lambda: not engine.tasks.requests, "the request is forgotten", 5)
    assert not stack.orchestrator.num_requests
    arenas = [*(worker.exchange.arena for worker in stack.workers.values()), stack.orchestrator.tensors.exchange.arena]
    await wait_until_async(lambda: not sum(arena.num_blocks for arena in arenas), "all blocks are free", 5)


def count_up(stack: Stack, num_parts: int, x: Array = X, **asked: Any) -> AsyncGenerator[list[list[Array]]]:
    return stack.orchestrator.stream(submission(streaming.count_up, [x], (num_parts,), **asked))


def num_made() -> int:
    """Returns how many parts the workflow has reached in its first run."""
    return streaming.made.index("closed") if "closed" in streaming.made else len(streaming.made)


async def test_parts_come_in_order_and_end(stack: Stack) -> None:
    parts = [part async for together in count_up(stack, 10) for part in together]
    np.testing.assert_array_equal([part[0] for part in parts], [X + number for number in range(1, 11)])


async def test_a_part_comes_before_the_next_one_is_made(stack: Stack) -> None:
    parts = stack.orchestrator.stream(submission(streaming.count_up_to_10, [np.array([1, 1], np.float32)]))
    numbers = [part[0][0] async for together in parts for part in together]
    assert numbers == list(range(2, 11))


async def test_a_slow_consumer_stops_the_workflow_and_gets_all_that_is_ready_at_once(stack: Stack) -> None:
    parts = count_up(stack, 50)
    got = [await anext(parts)]
    (pending,) = stack.orchestrator._answers._pending.values()  # pyright: ignore[reportPrivateUsage]
    stream = pending.stream
    assert stream is not None
    for _ in range(5):
        num_got, num_held = sum(map(len, got)), len(got[-1])
        room = MAX_UNTAKEN - num_held
        await wait_until_async(lambda: len(stream._parts) == room, "the others are there")  # noqa: B023  # pyright: ignore
        await wait_until_async(lambda: num_made() == num_got + room + 1, "the workflow is as far as it may be")  # noqa: B023
        got.append(await anext(parts))
        assert len(got[-1]) == room or not room
    assert num_made() <= sum(map(len, got)) + MAX_UNTAKEN + 1
    got += [together async for together in parts]
    assert [float(part[0][0]) for together in got for part in together] == list(range(21, 71))


async def test_large_parts_are_read_where_they_were_made(stack: Stack) -> None:
    ends: list[list[float]] = []
    stream = stack.orchestrator.stream(
        submission(streaming.ramps, [SEED], (12,)), take=lambda arrays: (arrays[0].flags.owndata, arrays[0][[0, -1]].tolist())
    )
    async for together in stream:
        for owns_data, values in together:
            assert not owns_data
            ends.append(values)
    assert ends == [[7.0 + number, 2_000_006.0 + number] for number in range(12)]


async def test_closing_early_cancels_the_request(stack: Stack) -> None:
    parts = count_up(stack, 1000)
    await anext(parts)
    await parts.aclose()
    await wait_until_async(lambda: "closed" in streaming.made, "the generator is closed")
    assert num_made() <= MAX_UNTAKEN + 2


async def test_cancelling_the_future_cancels_the_request(stack: Stack) -> None:
    futures: list[asyncio.Future[list[Array]]] = []
    parts = stack.orchestrator.stream(submission(streaming.count_up, [X], (1000,)), started=futures.append)
    await anext(parts)
    futures[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await anext(parts)


async def test_an_error_comes_after_the_parts_before_it(stack: Stack) -> None:
    numbers: list[float] = []

    async def read() -> None:
        async for together in count_up(stack, 100, np.array([9, 9], np.float32)):
            numbers.extend(float(part[0][0]) for part in together)

    with pytest.raises(ProgramError, match="13 is not allowed"):
        await read()
    assert numbers == [10, 11, 12, 13]


async def test_a_deadline_ends_a_stream_that_nobody_takes(stack: Stack) -> None:
    parts = count_up(stack, 1000, terms=within(0.3))
    await anext(parts)
    await wait_until_async(lambda: "closed" in streaming.made, "the generator is closed")
    with pytest.raises(DeadlineError):
        await anext(parts)


async def test_two_streams_share_batches_and_nothing_else(stack: Stack) -> None:
    async def numbers(start: float) -> list[float]:
        x = np.array([start, start], np.float32)
        return [float(part[0][0]) async for together in count_up(stack, 10, x) for part in together]

    assert await asyncio.gather(numbers(20), numbers(40)) == [list(range(21, 31)), list(range(41, 51))]


async def test_a_story_tells_of_parts(stack: Stack) -> None:
    origin = Origin(request_id="r", transport="http")
    async for _ in count_up(stack, 2, origin=origin):
        pass
    assert origin.story is not None
    assert [step["index"] for step in origin.story.steps() if step["event"] == "part"] == [0, 1]
