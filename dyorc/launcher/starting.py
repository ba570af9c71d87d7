"""Starts what Ray has to start, which may fail on a busy machine for no other reason, and says in one line why it did not."""

import asyncio
from collections.abc import Callable

import structlog

from dyorc.errors import LaunchError, bounded, text_of

_log = structlog.get_logger("dyorc.launcher")

_MAX_CHARACTERS = 300


async def start(what: str, step: Callable[[], None], undo: Callable[[], None], max_attempts: int = 2) -> None:
    """Runs `step` on a thread, and once more if it raises: Ray's processes give each other fixed times to answer.

    Args:
        what: For people.
        undo: Takes back what an attempt that failed may have done.

    Raises:
        LaunchError: If the last attempt fails; one line, with what it raised as its cause.
    """
    for number in range(1, max_attempts + 1):
        try:
            await asyncio.to_thread(step)
            return
        except Exception as error:
            await asyncio.to_thread(undo)
            reason = _in_one_line(error)
            if number == max_attempts:
                times = "" if max_attempts == 1 else f", tried {max_attempts} times"
                raise LaunchError(f"{what} could not be started{times}: {reason}") from error
            _log.warning("start_failed", what=what, error=reason, attempt=number)


def _in_one_line(error: Exception) -> str:
    """What an error says; Ray's go on for pages, and carry the ends of log files."""
    text = " ".join(text_of(error).split())
    return bounded(f"{type(error).__name__}: {text}", _MAX_CHARACTERS)
