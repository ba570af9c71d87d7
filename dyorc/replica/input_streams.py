"""The streams that a running call reads, as its program's code sees them."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from dyorc.replica.program_thread import ProgramThread

T = TypeVar("T")


class _Ended:
    """Stands behind the last part."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class InputStream:
    """An async iterator over the parts of a stream. Used on the program's loop; any number of tasks may read, each part once.

    Args:
        taken: Called with the number of parts taken so far, after each.

    Attributes:
        reader: The task that waits for the next part now; None if none does.
        owner: The call's own task; the call does nothing while that waits.
        waited_s: How long the call has waited for parts so far. Not that of other tasks: the call may work meanwhile.
    """

    def __init__(self, taken: Callable[[int], None]) -> None:
        self._parts: deque[Any] = deque()
        self._is_fed = asyncio.Event()
        self._taken = taken
        self._num_taken = 0
        self.reader: asyncio.Task[Any] | None = None
        self.owner: asyncio.Task[Any] | None = None
        self.waited_s = 0.0
        self._is_over = False
        self._is_closed = False

    def feed(self, part: Any) -> None:
        """Appends a part, unless the program wants no more."""
        if self._is_closed:
            return
        self._parts.append(part)
        self._is_fed.set()

    def end(self, error: BaseException | None = None) -> None:
        """Ends the stream after the parts before: with an error, if there is one."""
        self.feed(_Ended(error))

    def cut(self, error: BaseException) -> None:
        """Ends the stream now. Who waits for a part gets this error."""
        self._parts.clear()
        self.end(error)

    def close(self) -> None:
        """Gives up what was not read. Loops end, as those over a closed generator; what makes the stream goes on no further
        than a few parts, and ends with the call."""
        self._parts.clear()
        self._is_closed = True
        self._is_fed.set()

    async def aclose(self) -> None:
        """Closes it, so that `contextlib.aclosing` takes it."""
        self.close()

    def __aiter__(self) -> "InputStream":
        self.check_begin()
        return self

    def check_begin(self) -> None:
        """Checks that a loop that begins finds something: its parts, or the end.

        Raises:
            RuntimeError: If the stream was read to its end before.
        """
        if self._is_over:
            raise RuntimeError(
                "the stream was read to its end before, and a program reads a stream once; keep its parts in a list"
            )

    async def __anext__(self) -> Any:
        while not self._parts and not self._is_closed:
            self._is_fed.clear()
            task = self.reader = asyncio.current_task()
            since_s = time.perf_counter()
            try:
                await self._is_fed.wait()
            finally:
                self.reader = None
                if task is self.owner:
                    self.waited_s += time.perf_counter() - since_s
        if self._is_closed:
            raise StopAsyncIteration
        part = self._parts[0]
        if isinstance(part, _Ended):
            if part.error is None:
                self._is_over = True
                raise StopAsyncIteration
            raise part.error
        self._parts.popleft()
        self._num_taken += 1
        self._taken(self._num_taken)
        return part


class CallTurns:
    """Lets one of the calls on threads run at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, thread: ProgramThread, job: Callable[[], T]) -> T:
        """Runs a job, which must not raise, on a call's thread, when it is its turn."""
        async with self._lock:
            return await thread.run(job)

    async def wait(self, stream: InputStream) -> Any:
        """Returns the next part of a stream, for a job that has the turn, and lends it to others meanwhile."""
        since_s = time.perf_counter()
        self._lock.release()
        try:
            return await anext(stream)
        finally:
            await self._lock.acquire()
            stream.waited_s += time.perf_counter() - since_s


class BlockingStream:
    """An iterator over the parts of a stream, for code on another thread, which has the turn."""

    def __init__(self, stream: InputStream, turn: CallTurns, loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._turn = turn
        self._loop = loop
        self._is_closed = False

    def close(self) -> None:
        """See `InputStream.close`; `contextlib.closing` takes it."""
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._stream.close)

    def __iter__(self) -> "BlockingStream":
        self._stream.check_begin()
        return self

    def __next__(self) -> Any:
        if self._is_closed:
            raise StopIteration
        outcome = asyncio.run_coroutine_threadsafe(self._next(), self._loop).result()
        if isinstance(outcome, _Ended):
            if outcome.error is None:
                raise StopIteration
            raise outcome.error
        return outcome

    async def _next(self) -> Any:
        try:
            return await self._turn.wait(self._stream)
        except StopAsyncIteration:
            return _Ended(None)
        except BaseException as error:  # it crosses threads as a value: a task that raised SystemExit would end the loop
            return _Ended(error)
