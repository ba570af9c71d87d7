"""The thread of one program, which runs jobs in order and reports each to the event loop; and interpreter settings for it."""

import asyncio
import ctypes
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from dyorc.replica.user_code import own_context
from dyorc.system.hidden_loop import hide_loop, show_loop
from dyorc.system.switch_interval import switch_interval_at_most

T = TypeVar("T")
_Job: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None] | None]


class ThreadInterrupted(BaseException):
    """Raised in a thread that is given up. Not an `Exception`, so that programs do not catch it."""


class ThreadStoppedError(Exception):
    """A thread was stopped before it has run a job."""


class ProgramThread:
    """Runs from the start until it is stopped. A daemon: a program that hangs does not keep the process from ending.

    Used on the event loop.

    Attributes:
        program: As given: whose thread it is, a program's or a group's.
    """

    def __init__(self, program: str, loop: asyncio.AbstractEventLoop) -> None:
        self.program = program
        self._waiting: set[asyncio.Future[Any]] = set()
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
        """Runs a job, which must not raise, after those before it; then `done` with its result, on the loop."""
        self._jobs.put((job, done))

    def submit_silently(self, job: Callable[[], object]) -> None:
        """Runs a job, which must not raise, after those before it; the loop does not learn of its end."""
        self._jobs.put((job, None))

    async def run(self, job: Callable[[], T]) -> T:
        """Returns the result of a job, which must not raise.

        Raises:
            ThreadStoppedError: If the thread is stopped meanwhile.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        self.submit(job, lambda result: None if future.done() else future.set_result(result))
        return await future

    def run_here(self, job: Callable[[], T]) -> T:
        """Runs a job on the loop, while the thread does nothing, and returns its result.

        The job sees the values of context variables that earlier jobs have set, such as `decimal`'s precision and NumPy's
        handling of errors. It sees no running loop, since it must not use ours.
        """
        task = hide_loop(self._loop)
        try:
            return self._context.run(job)
        finally:
            show_loop(self._loop, task)

    def stop(self) -> None:
        """Ends it after its running job. Other jobs are dropped, and no results are reported."""
        self._is_over = True
        self._jobs.put(None)
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(ThreadStoppedError())

    def join(self, timeout_s: float) -> None:
        """Waits until it has ended, after `stop`. Blocking."""
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
            if not self._is_over:  # otherwise it was interrupted, or the loop was closed meanwhile
                raise

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None and not self._is_over:
            job, done = item
            result = self._context.run(job)
            if done is not None:
                self._loop.call_soon_threadsafe(self._tell, done, result)
            del item, job, done, result  # otherwise they keep tensors alive until the next job

    def _tell(self, done: Callable[[T], None], result: T) -> None:
        if not self._is_over:
            done(result)


_NUM_THREADS = "DYORC_NUM_THREADS"


@contextmanager
def interpreter_settings(switch_interval_s: float) -> Generator[None]:
    """Lets the loop interrupt programs that compute in Python soon, and keeps torch from starting threads for each program.

    The environment's own number of threads takes precedence. At the end, everything is as before.
    """
    is_ours = _NUM_THREADS not in os.environ
    if is_ours:
        os.environ[_NUM_THREADS] = "1"
    try:
        with switch_interval_at_most(switch_interval_s):
            yield
    finally:
        if is_ours:
            del os.environ[_NUM_THREADS]
