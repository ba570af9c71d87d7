"""The streams benchmark's three stages as a DyOrc workflow: programs that read each other's streams while these grow.

Served with `dyorc serve streams.py:streams`. Its peer is `ray_serve_app.py`.
"""

from collections.abc import AsyncIterator

import numpy as np
from jaxtyping import Int

import dyorc
from benchmarks.focused.streams.work import make_items, pass_on

Pair = Int[np.ndarray, "2"]


@dyorc.program(batched=False, max_ongoing=64)
async def first(plan: Pair) -> AsyncIterator[Pair]:
    """Makes parts."""
    async for item in make_items(plan):
        yield item


@dyorc.program(batched=False, max_ongoing=64)
async def second(items: AsyncIterator[Pair]) -> AsyncIterator[Pair]:
    """Passes parts on."""
    async for item in items:
        yield pass_on(item)


@dyorc.program(batched=False, max_ongoing=64)
async def third(items: AsyncIterator[Pair]) -> AsyncIterator[Pair]:
    """Passes parts on."""
    async for item in items:
        yield pass_on(item)


@dyorc.workflow
async def streams(plan: Pair) -> AsyncIterator[Pair]:
    """Chains the stages."""
    async for item in third(second(first(plan))):
        yield item
