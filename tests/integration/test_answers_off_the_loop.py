"""While an answer is made of large outputs, the event loop goes on, and the outputs stay where they are."""

import asyncio
import threading

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.core.arrays import Array
from tests import oip
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running
from tests.integration.test_tensor_path import infer, wait_until_empty
from tests.workflows import arithmetic, large

SEED = np.array([3], np.float32)
SMALL = np.arange(4, dtype=np.float32)
PATIENCE_S = 60.0
"""A test that would wait for ever fails after this time."""


@dyorc.workflow
async def stretched(seed: Float[np.ndarray, "1"]) -> Float[np.ndarray, "2000000"]:
    return large.ramp(seed)


class Gate:
    """A way of making an answer that takes until the test says so."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.has_begun = threading.Event()
        self.was_opened = False
        self.seen: Array | None = None

    def take(self, arrays: list[Array]) -> float:
        self.has_begun.set()
        self.was_opened = self.is_open.wait(PATIENCE_S)
        self.seen = arrays[0][[0, -1]].copy()
        return float(self.seen[0])


async def ask(stack: Stack, num_requests: int) -> None:
    """Sends small requests over HTTP."""
    for _ in range(num_requests):
        body = oip.binary_body({"x": SMALL}, parameters={"binary_data_output": True})
        answer = await stack.client.post("/v2/models/quadruple/infer", content=body.content, headers=body.headers)
        np.testing.assert_array_equal(oip.read(answer).outputs["output"], SMALL * 4)


async def test_small_requests_are_answered_while_a_large_answer_is_made() -> None:
    gate = Gate()
    async with running([stretched, arithmetic.quadruple]) as stack:
        making = asyncio.create_task(stack.orchestrator.infer(submission(stretched, [SEED]), take=gate.take))
        await wait_until_async(gate.has_begun.is_set, "the answer is being made")
        await ask(stack, 20)
        assert stack.orchestrator.num_requests == 1  # the large one goes on
        gate.is_open.set()
        assert await making == SEED[0]
        assert gate.was_opened
        await wait_until_empty(stack)


async def test_outputs_of_a_cancelled_request_are_freed_when_nobody_reads_them() -> None:
    gate = Gate()
    async with running([stretched, arithmetic.quadruple]) as stack:
        making = asyncio.create_task(stack.orchestrator.infer(submission(stretched, [SEED]), take=gate.take))
        await wait_until_async(gate.has_begun.is_set, "the answer is being made")
        making.cancel()
        await ask(stack, 5)
        making.cancel()  # once more: it is patient
        await ask(stack, 5)
        assert not making.done()
        assert sum(worker.exchange.arena.num_blocks for worker in stack.workers.values()) == 1
        gate.is_open.set()
        with pytest.raises(asyncio.CancelledError):
            await making
        assert gate.seen is not None
        assert gate.seen.tolist() == [SEED[0], SEED[0] + large.NUM_VALUES - 1]
        await wait_until_empty(stack)


async def test_an_error_on_the_thread_reaches_the_caller() -> None:
    def take(arrays: list[Array]) -> None:
        raise ValueError(threading.current_thread().name)

    async with running([stretched]) as stack:
        with pytest.raises(ValueError, match="dyorc-answers"):
            await stack.orchestrator.infer(submission(stretched, [SEED]), take=take)
        await wait_until_empty(stack)


async def test_small_answers_need_no_thread() -> None:
    async with running([arithmetic.quadruple]) as stack:
        name = await stack.orchestrator.infer(
            submission(arithmetic.quadruple, [SMALL]), take=lambda _: threading.current_thread()
        )
        assert name is threading.main_thread()


async def test_the_status_shows_what_each_arena_takes() -> None:
    gate = Gate()
    async with running([stretched]) as stack:
        making = asyncio.create_task(stack.orchestrator.infer(submission(stretched, [SEED]), take=gate.take))
        await wait_until_async(gate.has_begun.is_set, "the answer is being made")
        arenas = (await stack.client.get("/status")).json()["tensors"]["arenas"]
        gate.is_open.set()
        await making
    assert arenas.keys() == {"server", "ramp-0"}
    num_bytes = 4 * large.NUM_VALUES
    assert arenas["ramp-0"]["used_bytes"] == num_bytes <= arenas["ramp-0"]["resident_bytes"] < 2 * num_bytes
    assert arenas["ramp-0"]["size_bytes"] == stack.transport.arena_bytes


@pytest.mark.parametrize("is_raw", [False, True])
async def test_large_answers_are_unchanged(is_raw: bool) -> None:
    async with running([stretched]) as stack:
        answer = await infer(stack.client, "stretched", 3.0, binary_data_output=is_raw)
        found = oip.read(answer).outputs["output"]
        np.testing.assert_array_equal(found, SEED + np.arange(large.NUM_VALUES, dtype=np.float32))
