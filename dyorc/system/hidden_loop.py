"""Hides the running event loop from users' code that is called on its thread: the code must not use our loop, and may run one
of its
own. Only the standard library.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

_Task = asyncio.Task[Any] | None
_swap_task: Callable[[asyncio.AbstractEventLoop, _Task], _Task] | None = None
if sys.version_info >= (3, 14):
    # From then on the current task is the thread's and no longer the loop's: a loop within ours could not run its own.
    _swap_task = asyncio.tasks._swap_current_task


def hide_loop(loop: asyncio.AbstractEventLoop) -> "asyncio.Task[Any] | None":
    """Makes this thread's code see no running loop and no current task.

    Args:
        loop: The one that runs on this thread.

    Returns:
        What `show_loop` needs.
    """
    task = None if _swap_task is None else _swap_task(loop, None)
    asyncio._set_running_loop(None)
    return task


def show_loop(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any] | None") -> None:
    """Undoes `hide_loop`.

    Args:
        task: What that has returned.
    """
    asyncio._set_running_loop(loop)
    if _swap_task is not None:
        _swap_task(loop, task)
