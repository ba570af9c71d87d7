"""The thread of one program: does jobs in order, and tells the event loop when each is done."""

import asyncio
import ctypes
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from dyorc.replica.user_code import own_context

T = TypeVar("T")
_Job: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]


class ThreadInterrupted(BaseException):
    """Raised in a thread that is given up. No `Exception`, so that a program's own code lets it through."""


class ProgramThread:
    """Runs from the start until it is stopped. Used on the event loop.

    Attributes:
        program: The same.

    A daemon, so that a program that hangs does not keep the process from ending.
    """

    def __init__(self, program: str, loop: asyncio.AbstractEventLoop) -> None:
        self.program = program
        self._loop = loop
        self._context = own_context()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._is_over = False
        self._thread = threading.Thread(target=self._main, name=f"dyorc-{program}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def submit(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Runs a job, which must not raise, behind those before it; then `done` with its result, on the loop."""
        self._jobs.put((job, done))

    async def run(self, job: Callable[[], T]) -> T:
        """Returns the result of a job, which must not raise."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.submit(job, lambda result: None if future.done() else future.set_result(result))
        return await future

    def run_here(self, job: Callable[[], T]) -> T:
        """Returns the result of a job that is done on the loop, while the thread does nothing.

        It finds the values of context variables that earlier jobs have set, such as precisions of `decimal` and NumPy's handling
        of errors, and no running loop: code that asks for one would take ours for its own.
        """
        asyncio._set_running_loop(None)
        try:
            return self._context.run(job)
        finally:
            asyncio._set_running_loop(self._loop)

    def stop(self) -> None:
        """Ends it after its running job. What else was submitted is not done, and nothing is told any more."""
        self._is_over = True
        self._jobs.put(None)

    def join(self, timeout_s: float) -> None:
        """Waits until it has ended, after `stop`. Not for the event loop."""
        self._thread.join(timeout_s)

    def give_up(self) -> None:
        """Stops it, and interrupts its job. Code inside a C function is interrupted when that returns, if ever."""
        self.stop()
        if self._thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(ThreadInterrupted))

    def _main(self) -> None:
        try:
            self._work()
        except (ThreadInterrupted, RuntimeError):
            if not self._is_over:  # else it was interrupted, or the loop has been closed meanwhile
                raise

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None and not self._is_over:
            job, done = item
            result = self._context.run(job)
            self._loop.call_soon_threadsafe(self._tell, done, result)
            del item, job, done, result  # or they would keep tensors alive until the next job

    def _tell(self, done: Callable[[T], None], result: T) -> None:
        if not self._is_over:
            done(result)
