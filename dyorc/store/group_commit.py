"""Runs blocking steps on one thread, all waiting ones together: a group commit for stores on disk.

While one batch is written the next one gathers, so that a thousand submissions cost a few synchronizations with the disk,
not a thousand. Steps are added on one event loop; they run, and see each other's effects, in the order they were added.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
C = TypeVar("C")

_MAX_STEPS = 256


class PendingStep(NamedTuple, Generic[C]):
    """A function of the connection, and the future of its caller."""

    run: Callable[[C], Any]
    future: "asyncio.Future[Any]"


Outcome = Callable[[], Any]
"""Sets a step's result, or its error."""


class GroupCommit(Generic[C]):
    """Hands steps to a thread.

    Args:
        run_all: Called on the thread with steps; returns the outcome of each, once all of them are on disk.
    """

    def __init__(self, run_all: Callable[[list[Callable[[C], Any]]], list[Outcome]]) -> None:
        self._run_all = run_all
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dyorc-store")
        self._waiting: deque[PendingStep[C]] = deque()
        self._running: asyncio.Task[None] | None = None

    async def call(self, run: Callable[[C], T]) -> T:
        """Runs a step and returns its result. It is not undone when the caller is cancelled."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(PendingStep(run, future))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await future

    async def on_thread(self, run: Callable[[], T]) -> T:
        """Runs something else on the same thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    async def close(self) -> None:
        """Waits for all steps, and ends the thread."""
        if self._running is not None:
            await self._running
        self._thread.shutdown()

    async def _run(self) -> None:
        try:
            while self._waiting:
                steps = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_STEPS))]
                try:
                    outcomes = await self.on_thread(lambda steps=steps: self._run_all([step.run for step in steps]))
                except Exception as error:
                    outcomes = [_raising(error)] * len(steps)
                for step, outcome in zip(steps, outcomes, strict=True):
                    _settle(step.future, outcome)
        finally:
            self._running = None


def _settle(future: "asyncio.Future[Any]", outcome: Outcome) -> None:
    if future.done():  # its caller was cancelled
        return
    try:
        future.set_result(outcome())
    except Exception as error:
        future.set_exception(error)


def _raising(error: Exception) -> Outcome:
    def fail() -> Any:
        raise error

    return fail
