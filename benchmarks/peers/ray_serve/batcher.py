"""Forms batches as DyOrc does, for a Ray Serve deployment. Imports nothing of Ray."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkConservingBatcher(Generic[Item, Result]):
    """Runs one batch at a time, made of everything that waits when the previous one is done. Never waits for more.

    `@serve.batch` closes a batch when its timer fires or when it is full, even while the previous one is still running: requests
    that wait for a busy program are cut into small batches, which queue up. For use on one event loop.
    """

    def __init__(self, run: Callable[[list[Item]], Awaitable[Sequence[Result]]], max_batch_size: int) -> None:
        """Takes a function `run` that returns one result per item, in order."""
        if max_batch_size < 1:
            raise ValueError(f"a batch of at most {max_batch_size} items; expected 1 or more")
        self._run = run
        self._max_batch_size = max_batch_size
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._runner: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Result:
        """Returns the item's result. If its caller is cancelled while it waits, the item joins no batch.

        Raises:
            Exception: What `run` raised for the item's batch.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run_batches())
        return await future

    async def _run_batches(self) -> None:
        try:
            while batch := self._take():
                await self._answer(batch)
        finally:
            self._runner = None

    def _take(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        while self._waiting and len(batch) < self._max_batch_size:
            item, future = self._waiting.popleft()
            if not future.done():
                batch.append((item, future))
        return batch

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._run([item for item, _ in batch])
            if len(results) != len(batch):
                raise ValueError(f"{len(results)} results for a batch of {len(batch)} items")
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
