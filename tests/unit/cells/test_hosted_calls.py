"""Programs that wait and yield in a cell: large parts, a full arena, lost parts, code that blocks, parking, a new engine."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float, Int

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.config import ScalingConfig
from dyorc.engine.engine import Engine
from dyorc.errors import CapacityError, ExecutionError, InternalError
from dyorc.models.status import ProgramState
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.asking import submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.unit.cells.celled import celled
from tests.workflows import relayed

pytestmark = pytest.mark.anyio

Number = Int[np.ndarray, ""]
Large = Float[np.ndarray, "2000000"]
_PART_BYTES = 8_000_000


def parts_of(orchestrator: Orchestrator, workflow: Workflow, *statics: Any, first: int = 1) -> AsyncGenerator[list[Any]]:
    """Begins a streaming request."""
    return orchestrator.stream(submission(workflow, [np.array(first)], statics))


async def values(orchestrator: Orchestrator, workflow: Workflow, *statics: Any, first: int = 1) -> list[int]:
    """Returns the parts of a streaming request, each by its first element."""
    asked = parts_of(orchestrator, workflow, *statics, first=first)
    async with asyncio.timeout(TIMEOUT_S):
        return [int(part[0].reshape(-1)[0]) async for together in asked for part in together]


async def read_into(found: list[Any], stream: AsyncIterator[Any]) -> None:
    """Adds what a stream yields to a list."""
    async for each in stream:
        found.append(each)


def used_bytes(orchestrator: Orchestrator) -> int:
    return orchestrator.tensors.report()["arenas"]["server"]["used_bytes"]


async def until_idle(orchestrator: Orchestrator) -> None:
    """Waits until no request is left, and no memory is taken."""
    await wait_until_async(lambda: not orchestrator.num_requests, "no request is left")
    await wait_until_async(lambda: gc.collect() >= 0 and not orchestrator.tensors.report()["num_blocks"], "all is released")


@dyorc.workflow
async def show(first: Number, num_parts: int) -> AsyncIterator[Large]:
    """Yields parts of 8 MB."""
    async for part in relayed.pictures(first, num_parts):
        yield part


async def test_a_stream_of_100_large_parts_through_two_programs_holds_bounded_memory() -> None:
    async with celled(relayed.gallery, arena_bytes=2**29) as orchestrator:
        most, found = 0, []
        async for together in parts_of(orchestrator, relayed.gallery, 100):
            most = max(most, used_bytes(orchestrator))
            found += [int(part[0][0]) for part in together]
            del together
        assert found == [2 + at for at in range(100)]
        assert _PART_BYTES <= most < 50 * _PART_BYTES, "two streams, each at most 16 parts ahead, and what is on its way"
        await until_idle(orchestrator)


async def test_parts_wait_for_room_in_a_full_arena_and_others_go_on() -> None:
    async with celled(show, relayed.relay, arena_bytes=2**25) as orchestrator:
        slow = parts_of(orchestrator, show, 12)
        assert int((await anext(slow))[0][0][0]) == 1
        await wait_until_async(lambda: used_bytes(orchestrator) >= 3 * _PART_BYTES, "it is full")
        found = await values(orchestrator, relayed.relay, 50, 0.0)
        assert found == [int(total) for total in np.cumsum([2 * (1 + at) for at in range(50)])]
        rest = [int(part[0][0]) async for together in slow for part in together]
        assert rest[-1] == 12
        await until_idle(orchestrator)


async def test_a_stream_that_finds_no_room_for_too_long_fails_after_its_parts() -> None:
    is_closed = threading.Event()

    @dyorc.program(name="large", batched=False, max_ongoing=8)
    def large(first: Number, num_parts: int) -> Iterator[Large]:
        try:
            for at in range(num_parts):
                yield np.full(2_000_000, int(first) + at, np.float32)
        finally:
            is_closed.set()

    @dyorc.workflow
    async def unread(first: Number, num_parts: int) -> AsyncIterator[Large]:
        async for part in large(first, num_parts):
            yield part

    async with celled(unread, arena_bytes=2**25, arena_wait_s=0.2) as orchestrator:
        slow = parts_of(orchestrator, unread, 12)
        held = [await anext(slow)]
        await wait_until_async(is_closed.is_set, "nothing is read, so no room came")
        with pytest.raises(CapacityError, match=r"within 0\.2 s \(transport\.arena_wait_s\)"):
            await read_into(held, slow)
        firsts = [int(part[0][0]) for together in held for part in together]
        assert firsts == list(range(1, len(firsts) + 1))
        assert len(firsts) < 12
        held.clear()
        await until_idle(orchestrator)
        assert await values(orchestrator, unread, 3) == [1, 2, 3]


async def test_a_call_that_blocks_its_loop_is_given_up_and_other_programs_answer_meanwhile() -> None:
    is_over = threading.Event()
    num_loads = 0

    @dyorc.program(name="waits", batched=False, pure=False, execution_timeout_s=1.0)
    class Waits:
        def __init__(self) -> None:
            nonlocal num_loads
            num_loads += 1

        async def __call__(self, x: Number) -> Number:
            while x == 13 and not is_over.is_set():
                time.sleep(0.05)  # noqa: ASYNC251 -- that is the mistake
            return x

    waits = Waits()

    @dyorc.workflow(name="wait", programs=[waits])
    async def wait(x: Number) -> Number:
        return waits(x)

    try:
        async with celled(wait, relayed.count) as orchestrator:
            before = orchestrator.report()["programs"]["waits"]["replicas"]
            hung = asyncio.create_task(orchestrator.infer(submission(wait, [np.array(13)])))
            num_answers = 0
            while not hung.done():
                assert await values(orchestrator, relayed.count, 5, 0.0) == [1, 2, 3, 4, 5]
                num_answers += 1
            assert num_answers > 5
            with pytest.raises(ExecutionError):
                await hung
            (answer,) = await orchestrator.infer(submission(wait, [np.array(7)]))
            assert int(answer) == 7
            assert num_loads == 2
            assert set(before).isdisjoint(orchestrator.report()["programs"]["waits"]["replicas"])
            await until_idle(orchestrator)
    finally:
        is_over.set()


async def test_a_program_that_yields_is_parked_and_loaded_again() -> None:
    to_zero = {"min_replicas": 0, "max_replicas": 1, "downscale_delay_s": 0, "downscale_to_zero_delay_s": 0}
    numbers = relayed.numbers.with_options(num_replicas=1, autoscaling_config=to_zero)

    @dyorc.workflow(name="now_and_then", programs=[numbers])
    async def now_and_then(first: Number, num_parts: int, pause_s: float) -> AsyncIterator[Number]:
        async for part in numbers(first, num_parts, pause_s):
            yield part

    before = set(threading.enumerate())  # of other tests, some of which give threads up
    async with celled(now_and_then, scaling=ScalingConfig(interval_s=0.05, wait_cost=0)) as orchestrator:
        state = orchestrator.status.programs["numbers"]
        for _ in range(3):
            assert await values(orchestrator, now_and_then, 50, 0.01) == list(range(1, 51))
            await wait_until_async(lambda: state.state in (ProgramState.COLD, ProgramState.PARKED), "nobody needs it")
            await wait_until_async(
                lambda: "dyorc-numbers" not in [thread.name for thread in set(threading.enumerate()) - before], "its threads end"
            )


async def test_after_a_bug_of_the_engine_streams_begin_anew_on_the_same_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []

    @dyorc.program(name="endless", batched=False, max_ongoing=4)
    def endless(first: Number) -> Iterator[Large]:
        try:
            while True:
                yield np.full(2_000_000, first, np.float32)
        finally:
            closed.append(int(first))

    @dyorc.workflow(name="go_on", programs=[endless])
    async def go_on(first: Number) -> AsyncIterator[Large]:
        async for part in endless(first):
            yield part

    async with celled(go_on, relayed.count, arena_bytes=2**28) as orchestrator:
        before = orchestrator.report()["programs"]["endless"]["replicas"]
        streams = [parts_of(orchestrator, go_on, first=first) for first in range(4)]
        for first, stream in enumerate(streams):
            assert int((await anext(stream))[0][0][0]) == first

        def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(Engine, "handle", fail)
            with pytest.raises(InternalError):
                await values(orchestrator, relayed.count, 3, 0.0)
        for stream in streams:
            with pytest.raises(InternalError):
                async for _ in stream:
                    pass
        await wait_until_async(lambda: sorted(closed) == [0, 1, 2, 3], "their generators are closed")
        await until_idle(orchestrator)
        assert set(orchestrator.report()["programs"]["endless"]["replicas"]) == set(before)
        again = parts_of(orchestrator, go_on, first=9)
        assert int((await anext(again))[0][0][0]) == 9
        await again.aclose()
        await wait_until_async(lambda: 9 in closed, "it is closed")
        await until_idle(orchestrator)
