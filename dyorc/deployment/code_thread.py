"""Runs users' code on a thread of its own in this process, with a time limit. Used on the event loop.

The code has come to its end in another process before (`code_process`), which does not mean that it does here. A thread cannot be
ended, so one that hangs is left behind. It keeps neither the next import nor the end of the process waiting: a thread of the
loop's executor would, since the loop joins those when it is closed.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from dyorc.errors import ModuleImportError
from dyorc.replica.program_thread import ProgramThread

T = TypeVar("T")


async def run_on_own_thread(job: Callable[[], T], timeout_s: float, subject: str) -> T:
    """Returns the result of a job. If it takes too long, or nobody waits for it any longer, it is interrupted: code inside a C
    function when that returns, if ever.

    Args:
        subject: What takes too long then, for the error.

    Raises:
        ModuleImportError: If it takes too long.
        BaseException: What the job raises.
    """
    thread = ProgramThread("import", asyncio.get_running_loop())
    try:
        async with asyncio.timeout(timeout_s):
            result, error = await thread.run(partial(_outcome_of, job))
    except BaseException as reason:
        thread.give_up()
        if isinstance(reason, TimeoutError):
            raise ModuleImportError(f"{subject} has taken more than {timeout_s:g} s") from None
        raise
    thread.stop()
    if error is not None:
        raise error
    return result[0]


def _outcome_of(job: Callable[[], T]) -> tuple[list[T], BaseException | None]:
    try:
        return [job()], None
    except BaseException as error:  # the event loop raises it
        return [], error
