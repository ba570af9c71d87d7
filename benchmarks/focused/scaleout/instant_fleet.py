"""Replicas that take no time: what is left of a server is what it decides."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import numpy as np

from dyorc.authoring.program import Program
from dyorc.config import LogsConfig
from dyorc.core.arrays import inline
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import BatchControl, DispatchBatch
from dyorc.engine.events import BatchDone, Event, ReplicaJoined
from dyorc.models.status import StatusBoard

RESULT = inline(np.ones(16, np.float32))
_EXECUTE_S = 1e-6


class InstantFleet:
    """Answers every batch in the next turn of the loop, with the same tensor for every call.

    Args:
        num_replicas: Of each program.
    """

    def __init__(self, programs: Sequence[Program], num_replicas: int, status: StatusBoard) -> None:
        self._programs = programs
        self._num_replicas = num_replicas
        self._status = status
        self._done: list[Event] = []
        self.num_calls = 0
        self.num_batches = 0

    @asynccontextmanager
    async def running(self, post: Callable[[Event], None], flush: Callable[[], None]) -> AsyncGenerator[None]:
        self._loop = asyncio.get_running_loop()
        self._post, self._flush = post, flush
        self.start_over()
        yield

    def control(self, action: BatchControl) -> None:
        raise AssertionError(f"{type(action).__name__}, and no program here waits or yields")

    def dispatch(self, action: DispatchBatch) -> None:
        self.num_batches += 1
        self.num_calls += len(action.operands)
        outputs = [(RESULT,)] * len(action.operands)
        if not self._done:
            self._loop.call_soon(self._answer)
        self._done.append(BatchDone(action.replica_id, action.batch_id, outputs, _EXECUTE_S))

    def _answer(self) -> None:
        done, self._done = self._done, []
        for event in done:
            self._post(event)
        self._flush()

    def start_over(self) -> None:
        for program in self._programs:
            for number in range(self._num_replicas):
                replica_id = f"{program.name}-{number}"
                self._status.joined(program.name, replica_id, 0)
                self._post(ReplicaJoined(replica_id, program.name))

    def add(self, program: Program) -> bool:
        return False

    def remove(self, program: str) -> None:
        pass

    def want(self, program: str, num_warm: int, num_parked: int) -> bool:
        return True

    def end_turn(self) -> None:
        pass

    def release(self, blocks: Sequence[BlockId]) -> None:
        pass

    def stage(self, replica_id: str, tensors: Sequence[TensorRef]) -> None:
        pass

    def give_up(self, replica_id: str, reason: str) -> None:
        pass

    def park(self, replica_id: str) -> None:
        pass

    def set_logs(self, config: LogsConfig) -> None:
        pass

    def report(self) -> Mapping[str, int]:
        return {}
