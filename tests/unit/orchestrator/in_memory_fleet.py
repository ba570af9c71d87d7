"""A fleet without processes, links and messages: programs run in the test's event loop, one batch at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from dyorc.answering.tensor_exchange import Tensors
from dyorc.authoring.program import Program
from dyorc.config import LogsConfig
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import BatchControl, DispatchBatch
from dyorc.engine.events import BatchDone, BatchFailed, Event, ReplicaJoined, ReplicaLeft
from dyorc.replica.batch_results import BatchError
from dyorc.replica.executor import ProgramExecutor


class InMemoryFleet:
    """One replica for each program, which keeps its results in the orchestrator's own arena.

    Attributes:
        held: Batches that wait, as long as `is_holding`.
        given_up: Replicas that the engine wanted to be rid of.
        parked: Programs whose replica is parked.
        num_released: Blocks that nobody needs any more.
    """

    def __init__(self, programs: Sequence[Program], tensors: Tensors) -> None:
        self._executors = {program.name: ProgramExecutor.load(program) for program in programs}
        self._tensors = tensors
        self._numbers = dict.fromkeys(self._executors, 0)
        self.is_holding = False
        self.held: list[DispatchBatch] = []
        self.given_up: list[str] = []
        self.parked: list[str] = []
        self.num_released = 0

    @asynccontextmanager
    async def running(self, post: Callable[[Event], None], flush: Callable[[], None]) -> AsyncGenerator[None]:
        """Announces its replicas while entered."""
        self._loop = asyncio.get_running_loop()
        self._post = post
        self._flush = flush
        self.start_over()
        yield

    def set_logs(self, config: LogsConfig) -> None:
        pass

    def start_over(self) -> None:
        """Announces all replicas."""
        for name in self._executors:
            self._post(ReplicaJoined(self._replica(name), name))

    def control(self, action: BatchControl) -> None:
        raise NotImplementedError(f"{type(action).__name__} comes with programs that yield")

    def dispatch(self, action: DispatchBatch) -> None:
        """Runs a batch in the loop's next turn, or keeps it."""
        if self.is_holding:
            self.held.append(action)
        else:
            self._loop.call_soon(self._run, action)

    def end_turn(self) -> None:
        """Does nothing: batches run in turns of their own."""

    def replace(self, name: str) -> None:
        """Lets a program's replica die, and another take its place."""
        self._post(ReplicaLeft(self._replica(name)))
        self._numbers[name] += 1
        self._post(ReplicaJoined(self._replica(name), name))

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Counts the blocks; there are no copies to free."""
        self.num_released += len(blocks)

    def stage(self, replica_id: str, tensors: Sequence[TensorRef]) -> None:
        """Refuses: there is one node."""
        raise AssertionError("nothing is on another node")

    def want(self, program: str, num_warm: int, num_parked: int) -> bool:
        """Has a parked replica join again."""
        if num_warm and program in self.parked:
            self.parked.remove(program)
            self._post(ReplicaJoined(self._replica(program), program))
        return program in self._executors

    def park(self, replica_id: str) -> None:
        """Notes the replica; its program stays loaded."""
        self.parked.append(replica_id.partition("-")[0])

    def give_up(self, replica_id: str, reason: str) -> None:
        """Notes the replica; the engine has forgotten it already."""
        self.given_up.append(replica_id)
        self.replace(replica_id.partition("-")[0])

    def report(self) -> Mapping[str, int]:
        """Returns nothing: no bytes travel."""
        return {}

    def _replica(self, name: str) -> str:
        return f"{name}-{self._numbers[name]}"

    def _run(self, action: DispatchBatch) -> None:
        columns = [self._tensors.read(column) for column in zip(*action.operands, strict=True)]
        result = self._executors[action.program.name].run(columns, action.statics)
        if isinstance(result, BatchError):
            event: Event = BatchFailed(
                action.replica_id, action.batch_id, result.error_type, result.message, result.traceback, input_at=result.input_at
            )
        else:
            rows = zip(*result.outputs, strict=True)
            outputs = [tuple(self._tensors.keep(array.copy()) for array in row) for row in rows]
            event = BatchDone(action.replica_id, action.batch_id, outputs, result.execute_s)
        self._post(event)
        self._flush()
