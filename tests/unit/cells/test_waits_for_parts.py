"""What a cell counts as a program's time: not that of what makes the stream which it reads."""

import asyncio

import numpy as np
import pytest

from dyorc.authoring.workflow import Workflow
from tests.asking import submission
from tests.deadlines import TIMEOUT_S
from tests.unit.cells.celled import celled
from tests.workflows.slow_producer import plain, waiting

pytestmark = pytest.mark.anyio


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
