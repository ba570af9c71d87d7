"""What the three stages of the streams benchmark do, and how their parts look.

A part is two int64: its number, to which each later stage adds `STAGE_STEP`, and the time at which it was due, in nanoseconds
of the monotonic clock, which all processes of a machine share. A request is two int64: how many parts, and the microseconds
between them; 0 for no pause. Used by DyOrc's workflow (`streams.py`), by the peer (`ray_serve_app.py`) and by the client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np
from numpy.typing import NDArray

Item = NDArray[np.int64]

STAGE_STEP = 1_000_000
NUM_LATER_STAGES = 2
ITEM_BYTES = 16


async def make_items(plan: Item) -> AsyncIterator[Item]:
    """The first stage: yields parts when they are due. A part that is yielded late keeps the time at which it was due."""
    num_parts, pause_us = (int(value) for value in plan)
    began_ns = time.monotonic_ns()
    for number in range(num_parts):
        due_ns = began_ns + number * pause_us * 1000
        if pause_us and (wait_ns := due_ns - time.monotonic_ns()) > 0:
            await asyncio.sleep(wait_ns / 1e9)
        yield np.array([number, due_ns if pause_us else time.monotonic_ns()])


def pass_on(item: Item) -> Item:
    """What each later stage does with a part."""
    return item + np.array([STAGE_STEP, 0])
