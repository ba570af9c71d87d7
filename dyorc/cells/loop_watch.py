"""Interrupts batches that block the event loop: programs that sleep, wait or compute for long although they never did before.

A thread notices that one batch does not end, and sends the loop's thread a signal. The handler raises `BatchInterrupted` there,
but only while the program's own code runs: it inspects the stack in that thread, so nothing can change meanwhile. Unlike an
exception that is set from outside, a signal also ends sleeping, and waiting for sockets and locks. Code inside a C function that
neither returns nor checks for signals is not interrupted.
"""

import _signal  # pyright: ignore[reportMissingImports] (no stubs know it)
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

from dyorc.replica import executor
from dyorc.replica.user_code import put_back
from dyorc.telemetry.tracing import program_spans

_SIGNAL = signal.SIGURG
"""Its default action is to do nothing, so a late signal does no harm."""
_OWN = str(Path(__file__).parents[1])
"""DyOrc's own code is in this folder."""
_POLL_S = 0.05
_NUM_POLLS = 5
"""A batch that is seen this many times in a row is interrupted: counted, not timed, since the whole machine may be paused."""
_IDLE_POLLS = 4
"""The thread sleeps this many times longer while no batch runs."""
_CALLERS = (executor.__file__, program_spans.__file__)
"""The files that call programs, and catch all that they raise."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that stop the server."""
_INT, _TERM = int(signal.SIGINT), int(signal.SIGTERM)
_get_handler: Callable[[int], Any] = _signal.getsignal
"""Called by `signal.getsignal`, which also looks for an enum: that takes a hundred times as long."""


class BatchInterrupted(BaseException):
    """Raised in a program that blocks the event loop. Not an `Exception`, so that programs do not catch it."""


class BatchWatchdog:
    """Watches the batches on one event loop. Enter it in the loop's thread; in any but the main thread, it does nothing."""

    def __init__(self) -> None:
        self._is_running = False
        self._num_batches = 0
        self._interrupted_batch = 0
        self._was_interrupted = False
        self._handlers: tuple[Any, Any] = (None, None)
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._loop_thread = threading.current_thread()
        if self._loop_thread is threading.main_thread():  # only this one gets signals
            self._before = signal.signal(_SIGNAL, self._handle)
            self._thread = threading.Thread(target=self._watch, name="dyorc-loop-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
            signal.signal(_SIGNAL, self._before)

    # The loop's side

    def begin(self) -> None:
        """Notes that a batch begins."""
        self._num_batches += 1
        self._was_interrupted = False
        self._handlers = _handlers()
        self._is_running = True

    def end(self) -> str:
        """Notes that the batch has ended. Returns why it should not have run on the loop; empty if it did no harm."""
        self._is_running = False
        if self._thread is not None and _handlers() != self._handlers:
            for number, handler in zip(_SIGNALS, self._handlers, strict=True):
                put_back(number, handler)
            return "it set a signal handler, which only works on the event loop's thread"
        return "it blocked the event loop" if self._was_interrupted else ""

    def _handle(self, number: int, frame: FrameType | None) -> None:
        while frame is not None and not frame.f_code.co_filename.startswith(_OWN):
            frame = frame.f_back
        is_meant = self._is_running and self._num_batches == self._interrupted_batch
        if is_meant and frame is not None and frame.f_code.co_filename in _CALLERS:
            self._was_interrupted = True
            raise BatchInterrupted

    # The thread's side

    def _watch(self) -> None:
        num_seen = num_batches = 0
        while not self._is_over.wait(_POLL_S if self._is_running else _IDLE_POLLS * _POLL_S):
            if not self._is_running or self._num_batches != num_batches:
                num_seen, num_batches = 0, self._num_batches
                continue
            num_seen += 1
            if num_seen >= _NUM_POLLS:
                self._interrupted_batch = num_batches
                signal.pthread_kill(self._loop_thread.ident or 0, _SIGNAL)


def _handlers() -> tuple[Any, Any]:
    return _get_handler(_INT), _get_handler(_TERM)
