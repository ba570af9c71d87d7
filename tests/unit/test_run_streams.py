"""`dyorc.run` of workflows whose programs wait or yield: parts on demand, also where a loop runs, and what ends early."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc import local_calls
from dyorc.core.arrays import inline
from dyorc.engine.actions import DispatchBatch, FeedPart, FormReason
from dyorc.engine.events import BatchPart, InputPartsTaken
from dyorc.errors import ExecutionError, ProgramError, ProgramLoadError
from dyorc.local_calls import LocalCalls

Number = Int[np.ndarray, ""]
log: list[Any] = []


@dyorc.program(batched=False)
async def count_async(start: Number) -> AsyncIterator[Number]:
    try:
        for number in itertools.count(int(start)):
            await asyncio.sleep(0)
            log.append(number)
            yield np.array(number)
    finally:
        await asyncio.sleep(0)
        log.append("closed")


@dyorc.program(batched=False)
def count_plain(start: Number) -> Iterator[Number]:
    try:
        for number in itertools.count(int(start)):
            log.append(number)
            yield np.array(number)
    finally:
        log.append("closed")


@dyorc.program(batched=False)
async def add_up(numbers: AsyncIterator[Number]) -> AsyncIterator[Number]:
    total = 0
    async for number in numbers:
        total += int(number)
        yield np.array(total)


@dyorc.program(batched=False)
def add_up_plain(numbers: Iterator[Number]) -> Iterator[Number]:
    total = 0
    for number in numbers:
        total += int(number)
        yield np.array(total)


@dyorc.program(batched=False)
def up_to(end: Number) -> Iterator[Number]:
    for number in range(int(end)):
        yield np.array(number)
    if end == 99:
        raise ValueError("99 is too much")


@dyorc.program(batched=False)
async def waits(x: Number) -> Number:
    await asyncio.sleep(0)
    return x + 1


@dyorc.workflow
async def read_async(start: Number) -> AsyncIterator[Number]:
    async for number in count_async(start):
        yield number


@dyorc.workflow
async def read_plain(start: Number) -> AsyncIterator[Number]:
    async for number in count_plain(start):
        yield number


@dyorc.workflow
async def sums(end: Number) -> AsyncIterator[Number]:
    async for number in add_up(up_to(end)):
        yield number


@dyorc.workflow
async def sums_plain(end: Number) -> AsyncIterator[Number]:
    async for number in add_up_plain(up_to(end)):
        yield number


@dyorc.workflow
async def several(x: Number) -> Number:
    calls = [waits(x) for _ in range(100)]
    return calls[-1] if sum([int(await call) for call in calls]) == 100 * (await waits(x)) else x


@pytest.fixture(autouse=True)
def empty_log() -> None:
    log.clear()


@pytest.mark.parametrize("workflow", [read_async, read_plain])
def test_a_program_yields_as_far_as_its_parts_are_asked_for(workflow: Any) -> None:
    parts = dyorc.run(workflow, 5)
    assert log == []
    assert [next(parts), next(parts), next(parts)] == [5, 6, 7]
    assert len(log) <= 5
    parts.close()
    assert log[-1] == "closed"


@pytest.mark.parametrize("workflow", [sums, sums_plain])
def test_a_program_reads_the_stream_of_another(workflow: Any) -> None:
    assert list(dyorc.run(workflow, 6)) == [0, 1, 3, 6, 10, 15]
    assert list(dyorc.run(workflow, 0)) == []
    with pytest.raises(ExecutionError, match="99 is too much"):
        list(dyorc.run(workflow, 99))


def test_a_program_that_yields_is_run_by_itself() -> None:
    assert list(dyorc.run(up_to, 3)) == [0, 1, 2]
    parts = dyorc.run(up_to, 99)
    assert list(itertools.islice(parts, 99)) == list(range(99))
    with pytest.raises(ProgramError, match="99 is too much"):
        next(parts)


def test_a_program_may_yield_as_many_parts_as_it_is_allowed_and_no_more() -> None:
    @dyorc.program(batched=False, max_parts=3)
    def at_most_three(end: Number) -> Iterator[Number]:
        for number in range(int(end)):
            yield np.array(number)

    assert list(dyorc.run(at_most_three, 3)) == [0, 1, 2]
    with pytest.raises(ProgramError, match="more parts than its max_parts allows, 3"):
        list(dyorc.run(at_most_three, 4))


@dyorc.program(batched=False)
async def first_of(numbers: AsyncIterator[Number]) -> Number:
    return await anext(aiter(numbers))


@dyorc.program(batched=False)
async def reads_nothing(numbers: AsyncIterator[Number]) -> Number:
    while not log:  # noqa: ASYNC110 (a stream that has not begun has nothing to close)
        await asyncio.sleep(0)
    return np.array(7)


@dyorc.workflow
async def first(start: Number) -> Number:
    return first_of(count_async(start))


@dyorc.workflow
async def first_sum(start: Number) -> Number:
    return first_of(add_up(count_plain(start)))


@dyorc.workflow
async def unread(start: Number) -> Number:
    return reads_nothing(count_async(start))


@dyorc.workflow
async def first_as_part(start: Number) -> AsyncIterator[Number]:
    yield first_of(count_async(start))


def test_it_ends_although_a_stream_was_not_read_to_its_end() -> None:
    for workflow, expected in ((first, 5), (first_sum, 5), (unread, 7)):
        log.clear()
        assert dyorc.run(workflow, 5) == expected
        assert log.pop() == "closed"
    assert list(dyorc.run(first_as_part, 5)) == [5]
    assert log.pop() == "closed"


def test_calls_that_all_wait_for_the_engine_are_not_waited_for() -> None:
    calls = LocalCalls()
    try:
        for batch_id, program, operands in ((1, count_plain, (inline(np.array(5)),)), (2, add_up, ()), (3, add_up_plain, ())):
            calls.start(DispatchBatch("here", batch_id, program, [operands], (), FormReason.FULL, max_parts=1))
        assert [type(event) for event in calls.wait()] == [BatchPart]
        assert calls.wait() == []
        assert calls.is_stuck
        assert calls.waiting() == [
            "a call of 'count_plain' waits until its part 0 is read",
            "a call of 'add_up' waits for a part of a stream that it reads",
            "a call of 'add_up_plain' waits for a part of a stream that it reads",
        ]
        calls.control(FeedPart("here", 2, 0, 0, (inline(np.array(7)),)))
        assert not calls.is_stuck
        assert [type(event) for event in (*calls.wait(), *calls.wait())] == [InputPartsTaken, BatchPart]
        assert calls.wait() == []
    finally:
        calls.close()


def test_programs_that_wait_run_side_by_side() -> None:
    assert dyorc.run(several, 1) == 2


@pytest.mark.anyio
async def test_it_runs_where_the_callers_thread_has_a_running_loop() -> None:
    assert asyncio.get_running_loop().is_running()
    assert dyorc.run(waits, 1) == 2
    assert list(dyorc.run(sums, 4)) == [0, 1, 3, 6]
    assert list(itertools.islice(dyorc.run(read_plain, 1), 2)) == [1, 2]


def test_a_program_that_waits_and_cannot_be_loaded_says_why() -> None:
    @dyorc.program(batched=False)
    class Broken:
        def __init__(self) -> None:
            raise OSError("no engine")

        async def __call__(self, x: Number) -> Number:
            return x

    with pytest.raises(ProgramLoadError, match="no engine"):
        dyorc.run(Broken(), 1)


# Programs that block


def test_a_call_that_blocks_for_too_long_fails_and_the_next_run_loads_its_program_again() -> None:
    loads: list[int] = []
    blocks = True

    @dyorc.program(batched=False, execution_timeout_s=0.2)
    class Stuck:
        def __init__(self) -> None:
            loads.append(threading.get_ident())

        async def __call__(self, x: Number) -> AsyncIterator[Number]:
            yield x
            while blocks:
                time.sleep(0.005)  # noqa: ASYNC251  it blocks its loop
            yield x + 1

    @dyorc.workflow
    async def read(x: Number) -> AsyncIterator[Number]:
        async for part in stuck(x):
            yield part

    stuck = Stuck()
    parts = dyorc.run(read, 1)
    assert next(parts) == 1
    with pytest.raises(ProgramError, match=r"TimeoutError: it has neither ended nor yielded for 0\.2 s, its execution_timeout_s"):
        next(parts)
    blocks = False
    assert list(dyorc.run(read, 1)) == [1, 2]
    assert len(loads) == 2


def test_a_run_that_is_left_while_a_program_blocks_does_not_hang_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_calls, "_CLOSE_S", 0.1)
    blocks = True

    @dyorc.program(batched=False)
    def numbers(x: Number) -> Iterator[Number]:
        yield x
        while blocks:
            time.sleep(0.005)
        yield x + 1

    @dyorc.workflow
    async def read(x: Number) -> AsyncIterator[Number]:
        async for part in numbers(x):
            yield part

    parts = dyorc.run(read, 1)
    assert next(parts) == 1
    parts.close()
    blocks = False
    assert list(dyorc.run(read, 1)) == [1, 2]


def test_a_program_that_waits_for_its_reader_is_not_late() -> None:
    @dyorc.program(batched=False, execution_timeout_s=0.05)
    async def numbers(x: Number) -> AsyncIterator[Number]:
        for number in range(100):
            yield x + number

    @dyorc.workflow
    async def read(x: Number) -> AsyncIterator[Number]:
        async for part in numbers(x):
            yield part

    parts = dyorc.run(read, 0)
    assert next(parts) == 0
    time.sleep(0.2)
    assert list(parts) == list(range(1, 100))
