"""Where the parts of a call come from: a generator of the program's, asynchronous or not. Used on the program's loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextvars import Context
from typing import Any, Protocol, TypeVar

from dyorc.replica.input_streams import CallTurns, InputStream
from dyorc.replica.program_loop import ProgramLoop
from dyorc.replica.program_thread import ProgramThread

T = TypeVar("T")


class _End:
    def __repr__(self) -> str:
        return "END"


END = _End()
"""What `next` returns when no more follows."""


class PartSource(Protocol):
    """A generator, one step at a time."""

    async def next(self) -> Any:
        """Returns the next value; `END` after the last. Raises what the program raises."""
        ...

    async def close(self) -> None:
        """Closes the generator: its ``finally`` blocks run. Raises what they raise."""
        ...


class AsyncParts:
    """An async generator."""

    def __init__(self, generator: AsyncGenerator[Any]) -> None:
        self._generator = generator

    async def next(self) -> Any:
        try:
            return await anext(self._generator)
        except StopAsyncIteration:
            return END

    async def close(self) -> None:
        await self._generator.aclose()


class SteppedParts:
    """A generator that runs on the loop's thread, in turns with others: each step keeps the loop busy."""

    def __init__(self, generator: Generator[Any], loop: ProgramLoop) -> None:
        self._generator = generator
        self._loop = loop

    async def next(self) -> Any:
        await asyncio.sleep(0)  # the turn of the others
        return self._loop.outside(lambda: next(self._generator, END))

    async def close(self) -> None:
        self._loop.outside(self._generator.close)


class ThreadedParts:
    """A generator that reads streams: on a thread of its own, since it may wait for a part at any line. One runs at a time.

    Args:
        make: Makes the generator; called first on the thread.
        context: Where the generator runs.
    """

    def __init__(
        self,
        make: Callable[[], Generator[Any]],
        context: Context,
        thread: ProgramThread,
        streams: Sequence[InputStream],
        turn: CallTurns,
    ) -> None:
        self._make = make
        self._context = context
        self._thread = thread
        self._streams = streams
        self._turn = turn
        self._generator: Generator[Any] | None = None

    async def next(self) -> Any:
        return await self._run(self._step)

    async def close(self) -> None:
        try:
            if self._generator is not None:
                await self._run(self._generator.close)
        finally:
            self._thread.stop()

    def _step(self) -> Any:
        if self._generator is None:
            self._generator = self._make()
        return next(self._generator, END)

    async def _run(self, job: Callable[[], T]) -> T:
        """Returns the result of a job on the thread. A cancelled one ends where it waits for a part, or with its step."""
        running = asyncio.ensure_future(self._turn.run(self._thread, lambda: self._context.run(_outcome, job)))
        try:
            outcome = await asyncio.shield(running)
        except asyncio.CancelledError:
            for stream in self._streams:
                stream.cut(GeneratorExit())
            await asyncio.wait([running])
            raise
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome


class _Raised:
    """What a job raised. It crosses threads as a value: a task that raised SystemExit would end the loop."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _outcome(job: Callable[[], T]) -> "T | _Raised":
    try:
        return job()
    except BaseException as error:
        return _Raised(error)
