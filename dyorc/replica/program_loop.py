"""The event loop of a program that waits or yields, on a thread of its own."""

import asyncio
import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

import structlog

from dyorc.replica.program_thread import ProgramThread, ThreadInterrupted, ThreadStoppedError
from dyorc.replica.user_code import own_context
from dyorc.system.hidden_loop import hide_loop, show_loop

_log = structlog.get_logger("dyorc.replica")

T = TypeVar("T")

_END_S = 2.0
"""How long tasks may take to end once the loop is stopped: their ``finally`` blocks run."""


class ProgramLoop:
    """Runs from the start until it is stopped. A daemon: a program that hangs does not keep the process from ending.

    It belongs to one program, so that one that blocks it blocks no other, or to the programs of a group (`ProgramLoops`).

    Attributes:
        program: As given: whose loop it is, a program's or a group's.
        loop: The event loop.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self.loop = asyncio.new_event_loop()
        self._context = own_context()
        self._is_over = False
        self._is_given_up = False
        self._is_ending = False
        self._interrupting = threading.Lock()
        self._helpers: list[ProgramThread] = []
        self._results: set[Future[Any]] = set()
        self._posted: deque[Callable[[], None]] = deque()
        self._is_posted = False
        self._thread = threading.Thread(target=self._main, name=f"dyorc-{program}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, or one of its helpers."""
        return self._thread.is_alive() or any(helper.is_alive for helper in self._helpers)

    def new_context(self) -> Context:
        """Returns a context for a call, with what the program has set while it was loaded."""
        return self._context.copy()

    # Any thread

    def run(self, job: Callable[[], T], *, is_async: bool = True) -> "Future[T]":
        """Runs a job on the loop's thread, and returns its future result, or `ThreadStoppedError` if the loop ends first. Nothing
        else runs there meanwhile.

        Args:
            is_async: Whether the job may use the loop. If not, it sees no running loop, and may run one of its own.
        """
        result: Future[T] = Future()
        self._results.add(result)
        result.add_done_callback(self._results.discard)

        def work() -> None:
            try:
                value = job() if is_async else self.outside(job)
            except BaseException as error:  # the job may raise anything, and the loop goes on
                _settle(result, None, error)
            else:
                _settle(result, value)

        self.post(work, context=self._context)
        if self._is_given_up or self.loop.is_closed():
            self._fail_results()
        return result

    def post(self, function: Callable[[], None], context: Context | None = None) -> None:
        """Calls a function soon on the loop's thread. It must not raise. Nothing happens if the loop has ended."""
        if context is None:
            self._posted.append(function)
            if self._is_posted:
                return  # the loop is awake, and comes to it
            self._is_posted, function = True, self._run_posted
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(function, context=context)

    def stop(self) -> None:
        """Ends it: cancels what runs there, and waits for that for a while."""
        if not self._is_over:
            self._is_over = True
            self.post(self.loop.stop)

    def join(self, timeout_s: float) -> None:
        """Waits until it has ended, after `stop`. Blocking."""
        give_up_s = time.monotonic() + timeout_s
        self._thread.join(timeout_s)
        for helper in self._helpers:
            helper.join(max(0.0, give_up_s - time.monotonic()))

    def give_up(self) -> None:
        """Ends it, and interrupts what runs there. Code inside a C function is interrupted when that returns, if ever."""
        if self._is_given_up:
            return
        self._is_given_up = True
        self.stop()
        self._fail_results()  # not by its own thread, which may never come to it
        for helper in self._helpers:
            helper.give_up()
        with self._interrupting:
            if self._thread.ident is not None and not self._is_ending:
                thread_id, error = ctypes.c_ulong(self._thread.ident), ctypes.py_object(ThreadInterrupted)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread_id, error)

    # The loop's thread

    def _run_posted(self) -> None:
        """Calls what was posted: a wake-up of the loop is a system call on either side, and one serves for many."""
        self._is_posted = False  # first: what is posted from now on may not be seen here
        try:
            for _ in range(len(self._posted)):
                self._posted.popleft()()
        finally:
            if self._posted and not self._is_posted:  # one has raised
                self._is_posted = True
                self.loop.call_soon(self._run_posted)

    def start(self, task: Coroutine[Any, Any, None], context: Context) -> "asyncio.Task[None]":
        """Starts a task, which must not raise."""
        return self.loop.create_task(task, context=context)

    def outside(self, job: Callable[[], T]) -> T:
        """Returns the result of a job that sees no running loop."""
        task = hide_loop(self.loop)
        try:
            return job()
        finally:
            show_loop(self.loop, task)

    def open_thread(self) -> ProgramThread:
        """Returns a new thread, which reports to this loop; stop it when it is no longer needed."""
        self._helpers = [helper for helper in self._helpers if helper.is_alive]
        helper = ProgramThread(self.program, self.loop)
        self._helpers.append(helper)
        return helper

    def _main(self) -> None:
        with suppress(ThreadInterrupted):
            self._run()
            self._withdraw_interruption()
        with suppress(BaseException):
            self._end()
        self.loop.close()
        self._fail_results()

    def _run(self) -> None:
        while not self._is_over:
            try:
                self._context.copy().run(self.loop.run_forever)
            except BaseException as error:  # a task of the program's own has raised SystemExit, or it was given up
                if not self._is_over:
                    _log.warning("program_ended_its_loop", program=self.program, error=f"{type(error).__name__}: {error}")

    def _withdraw_interruption(self) -> None:
        """Sees to it that no interruption comes from now on."""
        with self._interrupting:
            self._is_ending = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)

    def _fail_results(self) -> None:
        for result in list(self._results):
            _settle(result, None, ThreadStoppedError(f"the event loop of {self.program!r} has ended"))

    def _end(self) -> None:
        """Ends all tasks, and then the threads of generators, which those tasks close."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()  # what was posted: among it what has ended the loop, unless it was interrupted before
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
        self.loop.run_until_complete(asyncio.wait_for(self.loop.shutdown_asyncgens(), _END_S))
        for helper in self._helpers:
            helper.stop()


def _settle(result: Future[Any], value: Any, error: BaseException | None = None) -> None:
    """Sets a result, unless it was given up meanwhile."""
    with suppress(InvalidStateError):
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)
