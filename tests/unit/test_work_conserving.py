"""The batcher that the benchmarks give to Ray Serve: when it forms batches, which calls they hold, and what happens if one
fails.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from benchmarks.peers.ray_serve.batcher import WorkConservingBatcher
from tests.deadlines import TIMEOUT_S


class Doubling:
    """A program that doubles, and ends a batch when the test says so. Refuses batches with a negative number."""

    def __init__(self, max_batch_size: int = 4) -> None:
        self.batches: list[list[int]] = []
        self.batcher = WorkConservingBatcher(self._run, max_batch_size)
        self._is_done = asyncio.Semaphore(0)

    async def _run(self, items: list[int]) -> Sequence[int]:
        self.batches.append(items)
        await self._is_done.acquire()
        if min(items) < 0:
            raise ValueError("negative")
        return [2 * item for item in items]

    async def submit(self, *items: int) -> list[asyncio.Task[int]]:
        tasks = [asyncio.create_task(self.batcher.submit(item)) for item in items]
        await settle()
        return tasks

    async def finish(self, num_batches: int = 1) -> None:
        for _ in range(num_batches):
            self._is_done.release()
            await settle()


async def settle() -> None:
    """Waits until nothing goes on by itself any more."""
    for _ in range(20):
        await asyncio.sleep(0)


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))

    run.__name__ = test.__name__
    return run


@in_a_loop
async def test_an_idle_program_takes_an_item_at_once() -> None:
    program = Doubling()
    tasks = await program.submit(1)
    assert program.batches == [[1]]
    await program.finish()
    assert await tasks[0] == 2


@in_a_loop
async def test_items_that_arrive_together_share_a_batch() -> None:
    program = Doubling()
    await program.submit(1, 2, 3)
    assert program.batches == [[1, 2, 3]]


@in_a_loop
async def test_a_busy_program_gets_no_batch_and_then_all_that_waits() -> None:
    program = Doubling()
    tasks = await program.submit(1)
    for item in (2, 3, 4):
        tasks += await program.submit(item)
    assert program.batches == [[1]]
    await program.finish()
    assert program.batches == [[1], [2, 3, 4]]
    await program.finish()
    assert await asyncio.gather(*tasks) == [2, 4, 6, 8]


@in_a_loop
async def test_a_batch_has_at_most_max_batch_size_items_the_oldest_first() -> None:
    program = Doubling(max_batch_size=2)
    tasks = await program.submit(1, 2, 3, 4, 5)
    await program.finish(3)
    assert program.batches == [[1, 2], [3, 4], [5]]
    assert await asyncio.gather(*tasks) == [2, 4, 6, 8, 10]


@in_a_loop
async def test_an_exception_fails_only_its_batch() -> None:
    program = Doubling(max_batch_size=2)
    tasks = await program.submit(1, 2, 3, -4, 5)
    await program.finish(3)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in found] == ["2", "4", "negative", "negative", "10"]


@in_a_loop
async def test_too_few_results_fail_the_batch() -> None:
    async def lose_one(items: list[int]) -> list[int]:
        return items[1:]

    batcher = WorkConservingBatcher(lose_one, 4)
    found = await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)
    assert [str(each) for each in found] == ["1 results for a batch of 2 items"] * 2


@in_a_loop
async def test_a_cancelled_item_that_waits_is_in_no_batch() -> None:
    program = Doubling(max_batch_size=2)
    first = await program.submit(1)
    waiting = await program.submit(2, 3, 4)
    waiting[0].cancel()
    await program.finish(2)
    assert program.batches == [[1], [3, 4]]
    assert waiting[0].cancelled()
    assert await asyncio.gather(*first, *waiting[1:]) == [2, 6, 8]


@in_a_loop
async def test_a_cancelled_item_that_runs_does_not_disturb_the_others() -> None:
    program = Doubling()
    tasks = await program.submit(1, 2)
    tasks[0].cancel()
    await program.finish()
    assert await tasks[1] == 4
    later = await program.submit(3)
    await program.finish()
    assert await later[0] == 6


@in_a_loop
async def test_it_goes_on_after_all_that_waited_were_cancelled() -> None:
    program = Doubling()
    await program.submit(1)
    for task in await program.submit(2, 3):
        task.cancel()
    await program.finish()
    later = await program.submit(4)
    await program.finish()
    assert program.batches == [[1], [4]]
    assert await later[0] == 8


def test_a_batch_size_below_one_is_refused() -> None:
    async def same(items: list[int]) -> list[int]:
        return items

    with pytest.raises(ValueError, match="expected 1 or more"):
        WorkConservingBatcher(same, 0)
