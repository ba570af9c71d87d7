"""A fleet of replicas that dial in, without an engine: the test sends them batches, and reads what they answer."""

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncGenerator, Sequence
from typing import Any, TypeVar

import numpy as np

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.config import TransportConfig
from dyorc.core.arrays import Array
from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import BatchControl, CancelBatch, DispatchBatch, FeedPart, FormReason, GrantParts
from dyorc.engine.events import BatchDone, BatchFailed, BatchPart, Event, InputPartsTaken, ReplicaJoined, TensorsLost
from dyorc.errors import DyOrcError
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.link_fleet import LinkFleet, Site
from dyorc.replica.assignment import Identity, Uplink
from dyorc.replica.worker import Worker
from dyorc.transport.tensor_path import TensorExchange
from tests.deadlines import wait_until_async
from tests.integration.stack import FAST_LINK, FAST_TRANSPORT

A = TypeVar("A", BatchDone, BatchFailed, BatchPart, InputPartsTaken, TensorsLost)
_ANSWERS = BatchDone | BatchFailed | BatchPart | InputPartsTaken | TensorsLost


class BareFleet:
    """Running replicas, on threads of this process."""

    def __init__(self, fleet: LinkFleet, tensors: Tensors, status: StatusBoard, transport: TransportConfig) -> None:
        self.fleet = fleet
        self.tensors = tensors
        self.status = status
        self.events: list[Event] = []
        self.workers: list[Worker] = []
        self._transport = transport
        self._numbers = itertools.count(1)

    async def start(self, program: Program) -> str:
        """Starts a replica, and returns its name once it has joined."""
        replica_id = f"{program.name}-{len(self.workers)}"
        uplink = Uplink(address=self.fleet.address, link=FAST_LINK, transport=self._transport)
        worker = Worker(lambda: program, Identity(replica_id=replica_id, program=program.name, node="here", num_cores=2), uplink)
        self.workers.append(worker)
        await asyncio.to_thread(worker.start)
        await self.until_joined(replica_id)
        return replica_id

    async def until_joined(self, replica_id: str, times: int = 1) -> None:
        """Returns once a replica has joined so often."""
        joined = lambda: sum(isinstance(e, ReplicaJoined) and e.replica_id == replica_id for e in self.events)  # noqa: E731
        await wait_until_async(lambda: joined() >= times, f"{replica_id} joins")

    def run(
        self,
        replica_id: str,
        program: Program,
        inputs: Sequence[Any] = (),
        statics: tuple[StaticValue, ...] = (),
        max_parts: int = 1000,
        room_share: float = 1.0,
    ) -> int:
        """Sends a batch of one call, and returns its number."""
        batch_id = next(self._numbers)
        if not program.options.batched:  # its statics are structured values
            specs = program.signature.inputs
            inputs = [spec.array_of(value, spec.name) for spec, value in zip(specs, (*inputs, *statics), strict=True)]
            statics = ()
        operands = [self.keep(*inputs)]
        self.fleet.dispatch(
            DispatchBatch(
                replica_id, batch_id, program, operands, statics, FormReason.QUEUE_EMPTIED, room_share, max_parts=max_parts
            )
        )
        return batch_id

    def keep(self, *arrays: Any) -> tuple[TensorRef, ...]:
        """Returns references to arrays in this process."""
        return self.tensors.keep_all([np.asarray(array) for array in arrays])

    def feed(self, replica_id: str, batch_id: int, index: int, *tensors: TensorRef, stream: int = 0) -> None:
        """Feeds a part; without tensors, the end."""
        self.control(FeedPart(replica_id, batch_id, stream, index, tensors, is_end=not tensors))

    def fail_stream(self, replica_id: str, batch_id: int, index: int, error: DyOrcError) -> None:
        """Feeds the end of a stream that has failed."""
        self.control(FeedPart(replica_id, batch_id, 0, index, is_end=True, error=error))

    def grant(self, replica_id: str, batch_id: int, max_parts: int) -> None:
        """Lets a batch send so many parts."""
        self.control(GrantParts(replica_id, batch_id, max_parts))

    def cancel(self, replica_id: str, batch_id: int) -> None:
        """Ends a batch."""
        self.control(CancelBatch(replica_id, batch_id))

    def control(self, *actions: BatchControl) -> None:
        """Sends what one turn of the engine has for batches that run."""
        for action in actions:
            self.fleet.control(action)
        self.fleet.end_turn()

    # Answers

    def answers(self, batch_id: int, kind: type[A]) -> list[A]:
        """Returns what has been said of a batch so far, of one kind."""
        return [event for event in self.events if isinstance(event, kind) and event.batch_id == batch_id]

    def parts(self, batch_id: int) -> list[BatchPart]:
        """Returns the parts of a batch so far, which come in order."""
        parts = self.answers(batch_id, BatchPart)
        assert [part.index for part in parts] == list(range(len(parts)))
        return parts

    def arrays(self, tensors: Sequence[TensorRef]) -> list[Array]:
        """Returns copies of arrays."""
        return [np.array(array) for array in self.tensors.read(tensors)]

    def values(self, batch_id: int) -> list[Any]:
        """Returns the parts of a batch with one output, each by its first element."""
        return [self.arrays(part.tensors)[0].reshape(-1)[0].item() for part in self.parts(batch_id)]

    async def until_parts(self, batch_id: int, number: int) -> list[BatchPart]:
        """Waits for so many parts of a batch."""
        await wait_until_async(lambda: len(self.parts(batch_id)) >= number, f"{number} parts")
        return self.parts(batch_id)

    async def until_over(self, batch_id: int) -> BatchDone | BatchFailed | TensorsLost:
        """Waits for the end of a batch."""
        await wait_until_async(lambda: self._ends(batch_id), "the batch ends")
        (end,) = self._ends(batch_id)
        return end

    def _ends(self, batch_id: int) -> list[BatchDone | BatchFailed | TensorsLost]:
        answers = [event for event in self.events if isinstance(event, _ANSWERS) and event.batch_id == batch_id]
        ends = [answer for answer in answers if isinstance(answer, BatchDone | BatchFailed | TensorsLost)]
        assert not ends or answers[-1] is ends[-1], "nothing follows the end"
        return ends

    def has_ended(self, batch_id: int) -> bool:
        """Returns whether a batch has ended."""
        return bool(self._ends(batch_id))

    def release(self, tensors: Sequence[TensorRef]) -> None:
        """Frees tensors."""
        blocks = [(tensor.holder, tensor.block) for tensor in tensors if tensor.block]
        self.tensors.free(blocks)
        self.fleet.release(blocks)


@contextlib.asynccontextmanager
async def bare_fleet(
    programs: Sequence[Program], transport: TransportConfig = FAST_TRANSPORT, scheme: str = "unix"
) -> AsyncGenerator[BareFleet]:
    """Takes replicas of these programs."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dyorc-"))
        exchange = stack.enter_context(TensorExchange(OWN, "here", transport))
        tensors = Tensors(exchange)
        tensors.open()
        stack.callback(tensors.close)
        status = StatusBoard(programs)
        site = Site(address=f"{scheme}://{folder}/link", link=FAST_LINK, transport=transport, node="here")
        found = BareFleet(LinkFleet(site, tensors, status), tensors, status, transport)
        async with found.fleet.running(found.events.append, lambda: None):
            try:
                yield found
            finally:
                for worker in found.workers:
                    await asyncio.to_thread(worker.stop)
