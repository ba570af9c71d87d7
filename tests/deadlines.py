"""Waiting for an event, with a deadline. The only place in the tests that sleeps."""

import asyncio
import time
from collections.abc import Callable

_POLL_S = 0.01


def wait_until(is_met: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """Returns as soon as `is_met` gives something true.

    Raises:
        AssertionError: If it does not in time; names `what`.
    """
    deadline_s = time.monotonic() + timeout_s
    while not is_met():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not after {timeout_s} s: {what}")
        time.sleep(_POLL_S)


async def wait_until_async(is_met: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """`wait_until` that lets the event loop run."""
    deadline_s = time.monotonic() + timeout_s
    while not is_met():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not after {timeout_s} s: {what}")
        await asyncio.sleep(_POLL_S)
