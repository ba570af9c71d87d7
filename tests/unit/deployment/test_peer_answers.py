"""Cells answer each other's questions, and one that takes long does not hold up the others."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dyorc.errors import UnknownRequestError
from tests.unit.deployment.cells import Cells, cells

pytestmark = pytest.mark.anyio


@pytest.fixture
async def supervisor() -> AsyncIterator[Cells]:
    """Yields a supervisor without cells."""
    async with cells() as supervisor:
        yield supervisor


async def test_a_long_answer_does_not_hold_up_others(supervisor: Cells) -> None:
    asker, answerer = await supervisor.start(0), await supervisor.start(1)
    may_end = asyncio.Event()

    async def count_slowly(value: int) -> int:
        await may_end.wait()
        return value + 1

    answerer.peers.answer("slow", count_slowly)
    answerer.peers.answer("quick", lambda value: value + 2)
    slow = asyncio.create_task(asker.peers.ask("slow", 1))
    assert (await asker.peers.ask("quick", 1)).values == {1: 3}
    assert not slow.done()
    may_end.set()
    assert (await slow).values == {1: 2}


async def test_errors_of_long_answers_are_named(supervisor: Cells) -> None:
    asker, answerer = await supervisor.start(0), await supervisor.start(1)

    async def fail(error: str) -> None:
        raise UnknownRequestError(error) if error else ValueError("no text")

    answerer.peers.answer("fail", fail)
    assert (await asker.peers.ask("fail", "broken")).errors == {1: "broken"}
    assert (await asker.peers.ask("fail", "")).errors == {1: "ValueError: no text"}
