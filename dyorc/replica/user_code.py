"""Imports users' modules in one of our processes. Any thread.

The modules may change settings of the whole process. These hold for their programs; what our own code needs is restored: the
running loop, signal handlers, and how warnings and our log lines are treated. Context variables (NumPy's handling of errors,
`decimal`'s precision) hold for programs only: each runs in a copy of the import's context.
"""

import asyncio
import contextlib
import decimal
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from contextvars import Context
from types import FrameType
from typing import Any, TypeVar

import structlog

from dyorc.system.forked_copies import ending_copies
from dyorc.system.hidden_loop import hide_loop, show_loop
from dyorc.system.interrupts import ImportInterrupted
from dyorc.telemetry import logs

_log = structlog.get_logger("dyorc.user_code")

T = TypeVar("T")

_OURS = r"(dyorc|asyncio|uvloop|starlette|grpc|pydantic|msgspec|structlog|redis|zmq|ray)(\.|$)"
"""Modules whose warnings never become errors: they run on the event loop."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEFAULTS = (None, signal.SIG_DFL, signal.default_int_handler)
_context: list[Context] = []
"""The context of the last import, with what users' modules have set in it."""

_device: list[Any] = []
"""Where torch makes tensors, if a user's module has set that."""
_folder: list[str] = []
"""The current folder before a user's module changed it."""
_COPY_ENDS = b"dyorc: a process that the import of a user's module has forked came to the end of the import, and was ended\n"


def import_outside_of_loop(function: Callable[[], T]) -> T:
    """Returns the result of a function that imports users' modules; they may run their own event loops."""
    context = own_context()
    try:
        return import_on_own_thread(lambda: context.run(function))
    finally:
        _context[:] = [context]


def import_on_own_thread(function: Callable[[], T]) -> T:
    """Does the same on the thread that will run the programs: what the modules set in its context holds there."""
    with _with_our_signals(), _interruptible():
        try:
            with _outside_of_loop(), _with_our_settings(), ending_copies(_COPY_ENDS):
                return function()
        finally:
            keep_ours()


def own_context() -> Context:
    """Returns a context for users' code, with what their modules set when they were imported."""
    context = _context[0].copy() if _context else Context()
    context.run(lambda: decimal.setcontext(decimal.getcontext().copy()))
    return context


def start_folder() -> str:
    """Returns the folder in which the server was started, where modules are found."""
    return _folder[0] if _folder else os.getcwd()


def settle_thread() -> None:
    """Sets the device on which users' modules want tensors, on the thread that will load a program: torch keeps it per thread."""
    if _device:
        sys.modules["torch"].set_default_device(_device[0])


def has_thread_settings() -> bool:
    """Returns whether users' code has made settings that hold on this thread only."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return torch.get_default_device().type != "cpu" or torch.is_autocast_enabled() or not torch.is_grad_enabled()


def keep_ours() -> None:
    """Restores what our own code needs, after users' code may have changed it."""
    _shield_from_warnings()
    logs.keep()


@contextlib.contextmanager
def _outside_of_loop() -> Generator[None]:
    loop = asyncio._get_running_loop()
    if loop is None:
        yield
        return
    task = hide_loop(loop)
    try:
        yield
    finally:
        show_loop(loop, task)


@contextlib.contextmanager
def _with_our_settings() -> Generator[None]:
    stderr, limit, folder = sys.stderr, sys.getrecursionlimit(), os.getcwd()
    try:
        yield
    finally:
        _take_over_device()
        if sys.stderr is not stderr and stderr is not None:
            logs.write_to(stderr)
        sys.setrecursionlimit(max(limit, sys.getrecursionlimit()))
        if os.getcwd() != folder and not _folder:
            _folder.append(folder)


def _take_over_device() -> None:
    """Keeps the device that a user's module has set, for the programs only: this thread is ours."""
    torch = sys.modules.get("torch")
    if torch is not None and (device := torch.get_default_device()).type != "cpu":
        _device[:] = [device]
        torch.set_default_device(None)


@contextlib.contextmanager
def _with_our_signals() -> Generator[None]:
    """Keeps our signal handlers, and the descriptor that wakes the loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    try:
        yield
    finally:
        if descriptor != -1:
            signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
        for number, handler in handlers.items():
            if handler not in _DEFAULTS:
                put_back(number, handler)


@contextlib.contextmanager
def _interruptible() -> Generator[None]:
    """Lets signals that the running loop handles end an import, during which the loop stands still.

    Raises:
        CancelledError: If such a signal came, even if the user's code has suppressed that.
    """
    if threading.current_thread() is not threading.main_thread() or asyncio._get_running_loop() is None:
        yield
        return
    received: list[int] = []
    handlers = {
        number: handler for number in _STOPPING if callable(handler := signal.getsignal(number)) and handler not in _DEFAULTS
    }

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        handlers[signal.Signals(number)](number, frame)
        raise ImportInterrupted

    for number in handlers:
        signal.signal(number, interrupt)
    try:
        yield
    except BaseException:
        if not received:
            raise
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is interrupt:
                signal.signal(number, handler)
    if received:
        raise asyncio.CancelledError


def put_back(number: signal.Signals, handler: Any) -> bool:
    """Restores our handler of a signal, and logs it. Returns whether there was another. Only in the main thread."""
    other = signal.getsignal(number)
    if other is handler:
        return False
    signal.signal(number, handler)
    _log.warning("signal_handler_put_back", signal=number.name, handler=repr(other), hint="the server stops by its own")
    return True


def _shield_from_warnings() -> None:
    """Keeps warnings in our own code from becoming errors, as users' filters may want for others."""
    before = warnings.filters[0] if warnings.filters else None
    if any(entry[0] == "error" for entry in warnings.filters) and (before is None or _pattern_of(before) != _OURS):
        warnings.filterwarnings("default", module=_OURS)


def _pattern_of(entry: Any) -> str | None:
    return getattr(entry[3], "pattern", None)
