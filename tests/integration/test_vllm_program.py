"""The program on vLLM's engine, served: many calls at once, and calls that are left."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import dyorc
from tests.counting_engine import CountingEngine, install
from tests.deadlines import wait_until_async
from tests.integration.stack import running


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[CountingEngine]:
    """The engines that were made."""
    return install(monkeypatch)


async def test_sixty_four_calls_run_at_once(engines: list[CountingEngine]) -> None:
    program = dyorc.programs.vllm("tiny", max_ongoing=64)

    @dyorc.workflow(programs=[program], name="ask")
    async def ask(prompt: str) -> AsyncIterator[str]:
        async for part in program(prompt, {"max_tokens": 4, "together": 64}):
            yield part

    async with running([ask]) as stack, dyorc.AsyncClient(str(stack.client.base_url)) as client:

        async def text(at: int) -> str:
            return "".join([_text(part) async for part in client.stream("ask", prompt=np.array("x" * at))])

        assert await asyncio.gather(*map(text, range(1, 65))) == [f"{at}: 0 1 2 3" for at in range(1, 65)]
    assert (engines[0].most_running, engines[0].aborted) == (64, [])


async def test_a_call_that_is_left_in_the_middle_is_aborted(engines: list[CountingEngine]) -> None:
    program = dyorc.programs.vllm("tiny", sampling={"max_tokens": 10**9})

    @dyorc.workflow(programs=[program], name="ask_for_ever")
    async def ask_for_ever(prompt: str) -> AsyncIterator[str]:
        async for part in program(prompt):
            yield part

    async with running([ask_for_ever]) as stack, dyorc.AsyncClient(str(stack.client.base_url)) as client:
        parts = client.stream("ask_for_ever", prompt=np.array("hi"))
        assert _text(await anext(parts)) == "2: 0"
        await parts.aclose()
        await wait_until_async(lambda: engines[0].aborted != [] and engines[0].num_running == 0, "the call to be aborted")


def _text(part: Any) -> str:
    value = part.item() if isinstance(part, np.ndarray) else part
    return value.decode() if isinstance(value, bytes) else str(value)
