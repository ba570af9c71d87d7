"""Signals that come while a command starts or imports users' modules. Only the standard library."""

import os
import signal
from types import FrameType
from typing import NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a server."""


class ImportInterrupted(KeyboardInterrupt):
    """A signal that ends a server came while it imported the user's modules."""


def is_interrupt(error: BaseException) -> bool:
    """Returns whether a signal has raised an error, and not the user's module that was being imported."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    return isinstance(error, ImportInterrupted) or signal.getsignal(signal.SIGINT) is signal.default_int_handler


def end_interrupted() -> NoReturn:
    """Ends this process by SIGINT, without a traceback: a shell sees why it ended, and stops a loop of commands."""
    end_by(signal.SIGINT)


def end_by(number: int) -> NoReturn:
    """Ends this process by a signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)  # where the signal is blocked


def end_by_signals_at_start() -> None:
    """Lets a signal that stops a server end this process with a line, until the server handles it: nothing has begun by then.
    A signal that is ignored, as by `nohup`, stays so."""
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end_at_start)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def hold_signals_back() -> None:
    """Lets signals that stop a server wait, also for the program that replaces this process's, until that calls
    `end_by_signals_at_start`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def _end_at_start(number: int, frame: FrameType | None) -> None:
    os.write(2, f"dyorc: {signal.Signals(number).name} has ended the server while it started\n".encode())
    end_by(number)
