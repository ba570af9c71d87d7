"""Parts that a program of this process is fed with, and that another process has freed meanwhile."""

import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.answering.tensor_exchange import OWN
from dyorc.cells.batches import LocalBatch
from dyorc.cells.hosted_calls import HostedCalls
from dyorc.cells.hosted_program import FleetContext
from dyorc.cells.loop_watch import BatchWatchdog
from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import FeedPart
from dyorc.engine.events import BatchDone, Event, TensorsLost
from dyorc.models.status import StatusBoard
from dyorc.replica.ongoing_calls import load_on
from dyorc.replica.program_loops import ProgramLoops
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.exchanges import NODE, TensorPath, tensor_path

pytestmark = pytest.mark.anyio

Vector = Float[np.ndarray, "100"]


@dyorc.program(batched=False)
async def add_up(parts: AsyncIterator[Vector]) -> Vector:
    """Returns the sum of what it reads."""
    total = np.zeros(100, np.float32)
    async for part in parts:
        total += part
    return total


class Fed:
    """One running call of the program, and what it has reported."""

    def __init__(self, path: TensorPath, hosted: HostedCalls, events: list[Event]) -> None:
        self.path = path
        self.hosted = hosted
        self.events = events

    def make(self, value: float) -> TensorRef:
        """Makes a part in the memory of another process."""
        ((tensor,),) = self.path.publish([np.full((1, 100), value, np.float32)])
        return tensor

    def feed(self, index: int, tensor: TensorRef) -> None:
        """Feeds a part."""
        self.hosted.control(FeedPart(self.hosted.replica_id, 1, 0, index, (tensor,)))

    def end(self, index: int) -> None:
        """Feeds the end."""
        self.hosted.control(FeedPart(self.hosted.replica_id, 1, 0, index, (), True))

    async def outcome(self) -> Event:
        """Returns how the call has ended."""
        ends = lambda: [event for event in self.events if isinstance(event, BatchDone | TensorsLost)]  # noqa: E731
        await wait_until_async(ends, "it has ended")
        return ends()[0]


@contextlib.asynccontextmanager
async def fed(folder: Path) -> AsyncGenerator[Fed]:
    """Starts a call that reads a stream."""
    events: list[Event] = []
    with tensor_path(str(folder)) as path, BatchWatchdog() as watch:
        context = FleetContext(
            node=NODE, num_cores=1, inline_limit_s=0, room_wait_s=1.0, wait_for_room=lambda timeout_s: None, tensors=path.tensors,
            status=StatusBoard([add_up]), post=events.append, flush=lambda: None, watch=watch,
        )  # fmt: skip
        loops = ProgramLoops()
        loop = loops.open(add_up)
        hosted = HostedCalls(add_up, load_on(loop, add_up).result(TIMEOUT_S), loop, loops, context)
        hosted.join()
        hosted.run(LocalBatch(hosted.replica_id, 1, 1, [], (), (), 0.0, (), 1.0, (), False, None, None))
        try:
            yield Fed(path, hosted, events)
        finally:
            hosted.drop()
            loop.join(TIMEOUT_S)


def block_of(tensor: TensorRef) -> tuple[Any, ...]:
    return ((tensor.holder, tensor.block),)


async def test_parts_are_read_where_they_lie_in_another_process(tmp_path: Path) -> None:
    async with fed(tmp_path) as call:
        parts = [call.make(value) for value in (1, 2, 3)]
        for index, part in enumerate(parts):
            call.feed(index, part)
        call.end(3)
        end = await call.outcome()
        assert isinstance(end, BatchDone)
        ((total,),) = end.outputs
        np.testing.assert_array_equal(call.path.tensors.read([total])[0], np.full(100, 6, np.float32))
        call.path.tensors.free([(OWN, total.block)])


async def test_a_part_that_is_freed_before_it_is_read_is_reported_as_lost(tmp_path: Path) -> None:
    async with fed(tmp_path) as call:
        kept, lost = call.make(1), call.make(2)
        call.feed(0, kept)
        call.path.release([(lost,)])
        call.feed(1, lost)
        end = await call.outcome()
        assert isinstance(end, TensorsLost)
        assert tuple(end.blocks) == block_of(lost)


async def test_a_part_that_is_freed_while_it_is_read_is_reported_as_lost(tmp_path: Path) -> None:
    async with fed(tmp_path) as call:
        lost, is_freed = call.make(2), threading.Event()
        call.hosted.thread.run(lambda: is_freed.wait(TIMEOUT_S))  # the part is copied only then
        call.feed(0, lost)
        call.path.release([(lost,)])
        is_freed.set()
        end = await call.outcome()
        assert isinstance(end, TensorsLost)
        assert tuple(end.blocks) == block_of(lost)


async def test_a_part_whose_process_is_gone_is_reported_as_lost(tmp_path: Path) -> None:
    async with fed(tmp_path) as call:
        lost = call.make(2)
        call.path.tensors.leave(lost.holder)
        call.feed(0, lost)
        end = await call.outcome()
        assert isinstance(end, TensorsLost)
        assert tuple(end.blocks) == block_of(lost)
