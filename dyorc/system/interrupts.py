"""Ctrl-C while a command starts or imports users' modules. Only the standard library."""

import os
import signal
from typing import NoReturn


class ImportInterrupted(KeyboardInterrupt):
    """A signal that ends a server came while it imported the user's modules."""


def is_interrupt(error: BaseException) -> bool:
    """Returns whether a signal has raised an error, and not the user's module that was being imported."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    return isinstance(error, ImportInterrupted) or signal.getsignal(signal.SIGINT) is signal.default_int_handler


def end_interrupted() -> NoReturn:
    """Ends this process by SIGINT, without a traceback: a shell sees why it ended, and stops a loop of commands."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    raise SystemExit(128 + signal.SIGINT)  # where the signal is blocked
