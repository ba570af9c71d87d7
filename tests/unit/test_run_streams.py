"""`dyorc.run` of workflows whose programs wait or yield: parts on demand, also where a loop runs, and what ends early."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.errors import ExecutionError, ProgramError, ProgramLoadError

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
