"""What a cell counts as a program's time: not that of what makes the stream which it reads."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.authoring.workflow import Workflow
from tests.asking import submission
from tests.deadlines import TIMEOUT_S
from tests.unit.cells.celled import celled

pytestmark = pytest.mark.anyio

Number = Int[np.ndarray, ""]


@dyorc.program(batched=False)
def heavy(x: Number) -> Number:
    time.sleep(0.05)
    return x * x


@dyorc.workflow
async def squares(n: Number) -> AsyncIterator[Number]:
    for _ in range(10):
        yield heavy(n)


@dyorc.program(name="reader", batched=False)
def passthrough(numbers: Iterator[Number]) -> Iterator[Number]:
    yield from numbers


@dyorc.program(name="reader", batched=False)
async def passthrough_async(numbers: AsyncIterator[Number]) -> AsyncIterator[Number]:
    async for number in numbers:
        yield number


@dyorc.workflow
async def plain(n: Number) -> AsyncIterator[Number]:
    async for number in passthrough(squares(n)):
        yield number


@dyorc.workflow
async def waiting(n: Number) -> AsyncIterator[Number]:
    async for number in passthrough_async(squares(n)):
        yield number


@pytest.mark.parametrize("workflow", [plain, waiting])
async def test_a_reader_does_not_take_the_time_of_its_producer(workflow: Workflow) -> None:
    async with celled(workflow) as orchestrator, asyncio.timeout(TIMEOUT_S):
        asked = orchestrator.stream(submission(workflow, [np.array(3)]))
        parts = [int(part[0]) async for together in asked for part in together]
        assert parts == [9] * 10
        reader, made = orchestrator.statistics("reader"), orchestrator.statistics("heavy")
        assert reader.compute_infer.ns < made.compute_infer.ns / 2
        assert reader.compute_output.ns < made.compute_infer.ns / 2
        assert reader.compute_input.ns > made.compute_infer.ns / 2
