"""Residents of a cell end on their programs' thread, whatever the event loop still has to do with their batch.

The loop waits here until the thread has dropped all that it had to: what ends later was kept by the loop.
"""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.cells.batches import LocalBatch
from dyorc.cells.hosted_program import FleetContext, HostedProgram
from dyorc.cells.loop_watch import BatchWatchdog
from dyorc.cells.program_group import ProgramGroup
from dyorc.core.tensor import BlockId, is_resident
from dyorc.engine.events import BatchDone, BatchFailed, Event, TensorsLost
from dyorc.models.status import StatusBoard
from dyorc.replica.executor import ProgramExecutor
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.exchanges import NODE, tensor_path

pytestmark = pytest.mark.anyio

_ARENA_BYTES = 2**20
_RESULT_BYTES = 3 * _ARENA_BYTES // 4

droppers: list[int] = []
"""The threads on which residents have ended."""


class Watched:
    def __del__(self) -> None:
        droppers.append(threading.get_ident())


Numbers = Float[np.ndarray, " batch"]
Large = Float[np.ndarray, "batch n"]


@dyorc.program(group="watched")
def make(x: Numbers) -> tuple[Large, dyorc.Resident[Watched]]:
    """Makes residents, each beside a tensor of which the arena has room for one."""
    return np.zeros((len(x), _RESULT_BYTES // 4), np.float32), [Watched() for _ in x]


@dyorc.program(group="watched")
def look(watched: dyorc.Resident[Watched]) -> Numbers:
    """Reads residents."""
    return np.zeros(len(watched), np.float32)


class Group:
    """Both programs on their thread, and what they have reported."""

    def __init__(self, folder: Path) -> None:
        self.events: list[Event] = []
        self.released: list[int] = []
        self.group = ProgramGroup("watched")
        self.thread = self.group.start_thread()
        self._folder = folder
        self._number = 0
        self._hosted: dict[str, HostedProgram] = {}
        droppers.clear()

    @contextmanager
    def running(self) -> Iterator[None]:
        with tensor_path(str(self._folder), arena_bytes=_ARENA_BYTES) as path, BatchWatchdog() as watch:
            context = FleetContext(
                node=NODE, num_cores=1, inline_limit_s=0, room_wait_s=0, wait_for_room=lambda timeout_s: None,
                tensors=path.tensors, status=StatusBoard([make, look]), post=self.events.append, flush=self._flush, watch=watch,
            )  # fmt: skip
            for program in (make, look):
                executor = ProgramExecutor.load(program)
                hosted = self._hosted[program.name] = HostedProgram(program, executor, self.thread, context, group=self.group)
                hosted.join()
                self.group.joined(program.name)
            try:
                yield
            finally:
                self.group.release_all()  # else they end during another test
                self.settle()
                for hosted in self._hosted.values():
                    hosted.drop()
                self.thread.join(TIMEOUT_S)

    def _flush(self) -> None:
        """Releases what the engine would, and waits for the thread."""
        self.group.release(self.released)
        self.settle()

    def settle(self) -> None:
        """Blocks until the thread has done all that it was given."""
        is_done = threading.Event()
        self.thread.submit_silently(is_done.set)
        assert is_done.wait(TIMEOUT_S)

    async def run(self, program: dyorc.Program, columns: list[Any], lost: Iterable[BlockId] = ()) -> Event:
        """Runs a batch of one call. Returns how it has ended."""
        hosted, num_events = self._hosted[program.name], len(self.events)
        self._number += 1
        hosted.hold()
        hosted.run(LocalBatch(hosted.replica_id, self._number, 1, columns, (), (), 0.0, lost=list(lost)))
        columns = []
        await wait_until_async(lambda: len(self.events) > num_events, "it has ended")
        await asyncio.sleep(0)
        return self.events[-1]


async def test_the_loop_does_not_keep_what_a_batch_has_read(tmp_path: Path) -> None:
    group = Group(tmp_path)
    with group.running():
        made = await group.run(make, [np.zeros(1, np.float32)])
        assert isinstance(made, BatchDone)
        (number,) = [tensor.block for tensor in made.outputs[0] if is_resident(tensor)]
        assert not droppers
        group.released = [number]
        assert isinstance(await group.run(look, [[group.group.residents.get(number)]]), BatchDone)
        assert droppers == [group.thread._thread.ident]


async def test_the_loop_does_not_keep_results_that_found_no_room(tmp_path: Path) -> None:
    group = Group(tmp_path)
    with group.running():
        assert isinstance(await group.run(make, [np.zeros(1, np.float32)]), BatchDone)
        assert isinstance(await group.run(make, [np.zeros(1, np.float32)]), BatchFailed)
        assert droppers == [group.thread._thread.ident]


async def test_results_that_nobody_learns_of_end_on_the_thread(tmp_path: Path) -> None:
    group = Group(tmp_path)
    with group.running():
        event = await group.run(make, [np.zeros(1, np.float32)], lost=[("r", 1)])
        assert isinstance(event, TensorsLost)
        group.settle()
        assert droppers == [group.thread._thread.ident]


async def test_what_an_earlier_engine_knew_ends_on_the_thread(tmp_path: Path) -> None:
    group = Group(tmp_path)
    with group.running():
        assert isinstance(await group.run(make, [np.zeros(1, np.float32)]), BatchDone)
        group.group.release_all()
        group.settle()
        assert droppers == [group.thread._thread.ident]
        assert not len(group.group.residents)
