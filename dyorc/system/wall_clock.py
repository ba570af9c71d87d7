"""Waits by the wall clock, for what has to happen once in every full second. On an event loop's thread."""

import asyncio
import math
import time

_RESOLUTION_S = 0.001
"""Of uvloop's timers: a shorter wait may be none."""


async def wait_for_period(period_s: float, offset_s: float = 0.0) -> None:
    """Waits until the next full period of the clock has begun, and `offset_s` of it have passed.

    It never returns early, unlike a timer: uvloop rounds to milliseconds, so that a timer for the full second may fire in the
    second before. What then counts by seconds would count one of them twice. A clock that is set back ends the wait.
    """
    due_s = (math.floor((time.time() - offset_s) / period_s) + 1) * period_s + offset_s
    while 0 < (left_s := due_s - time.time()) <= period_s:  # noqa: ASYNC110  (no event says what time it is)
        await asyncio.sleep(max(left_s, _RESOLUTION_S))
