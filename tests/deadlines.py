"""Waits for events, with a deadline."""

import asyncio
import time
from collections.abc import Callable

_POLL_S = 0.01
TIMEOUT_S = 240.0
"""Far longer than anything takes, even on a badly overloaded machine."""


def wait_until(is_met: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Returns as soon as `is_met` returns something true.

    Raises:
        AssertionError: If it does not do so in time. The message names `what`.
    """
    deadline_s = time.monotonic() + timeout_s
    while not is_met():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not after {timeout_s} s: {what}")
        time.sleep(_POLL_S)


async def wait_until_async(is_met: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Like `wait_until`, but lets the event loop run."""
    deadline_s = time.monotonic() + timeout_s
    while not is_met():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not after {timeout_s} s: {what}")
        await asyncio.sleep(_POLL_S)
