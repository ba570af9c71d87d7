"""What the orchestrator needs of replicas, whether they dial in from other processes or live in this one."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Protocol

from dyorc.authoring.program import Program
from dyorc.config import LogsConfig
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import BatchControl, DispatchBatch
from dyorc.engine.events import Event, ReplicaJoined, ReplicaLeft


class Fleet(Protocol):
    """Carries out what the engine decides for replicas, and reports what happens to them. Decides nothing.

    It lives on the event loop: its methods neither wait nor raise, and failures are events. It posts `ReplicaJoined` for each
    replica that is ready and `ReplicaLeft` when one is gone; `BatchDone`, `BatchFailed` or `TensorsLost` for each batch, unless
    its replica left before, and until then `BatchPart` and `InputPartsTaken` for programs that yield or read streams;
    `LoadFailed` when a program cannot be loaded.
    """

    def running(self, post: Callable[[Event], None], flush: Callable[[], None]) -> AbstractAsyncContextManager[object]:
        """Serves one orchestrator while it is entered.

        Args:
            post: Takes an event. The engine gets it at the end of the loop's turn.
            flush: Called when no more events follow for now: the engine gets all of them at once.
        """
        ...

    def add(self, program: Program) -> bool:
        """Serves another program, which is on the status board. Returns whether its replicas come by themselves; otherwise the
        caller has to start them."""
        ...

    def remove(self, program: str) -> None:
        """Forgets a program that is no longer wanted, and accepts no replica of it from now on."""
        ...

    def dispatch(self, action: DispatchBatch) -> None:
        """Runs a batch."""
        ...

    def control(self, action: BatchControl) -> None:
        """Passes something on to a batch that runs. Nothing happens if it has ended."""
        ...

    def end_turn(self) -> None:
        """Runs the batches that programs in this process have: the engine has made all decisions of this turn."""
        ...

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Frees blocks that are no longer read. The orchestrator has freed its own; others may have copies of them."""
        ...

    def stage(self, replica_id: str, tensors: Sequence[TensorRef]) -> None:
        """Announces that a replica will need tensors of another node and may fetch them ahead. A fleet on one node ignores it."""
        ...

    def give_up(self, replica_id: str, reason: str) -> None:
        """Replaces a replica that hangs."""
        ...

    def want(self, program: str, num_warm: int, num_parked: int) -> bool:
        """Sets how many replicas of a program should take batches, and how many more should be parked. Saying it again changes
        nothing.

        Replicas load the program until there are enough. To have fewer, tell the engine too (`ReplicasWanted`): it parks surplus
        replicas once they hold no batch.

        Returns:
            Whether the program's replicas are this fleet's.
        """
        ...

    def park(self, replica_id: str) -> None:
        """Makes a replica that holds no batch drop its program. Its tensors stay; the engine has forgotten it."""
        ...

    def set_logs(self, config: LogsConfig) -> None:
        """Applies log settings to replicas in other processes, also to replicas that join later."""
        ...

    def start_over(self) -> None:
        """Announces every idle replica again, because a new engine knows none."""
        ...

    def report(self) -> Mapping[str, int]:
        """Returns figures for people."""
        ...


class Fleets:
    """Several fleets as one: some programs in this process, others in processes that dial in.

    What concerns a replica goes to the fleet that announced it, everything else to all.
    """

    def __init__(self, fleets: Sequence[Fleet]) -> None:
        self._fleets = fleets
        self._fleet_of: dict[str, Fleet] = {}

    @asynccontextmanager
    async def running(self, post: Callable[[Event], None], flush: Callable[[], None]) -> AsyncGenerator[None]:
        """Enters all fleets."""
        async with AsyncExitStack() as stack:
            for fleet in self._fleets:
                await stack.enter_async_context(fleet.running(partial(self._post, post, fleet), flush))
            yield

    def _post(self, post: Callable[[Event], None], fleet: Fleet, event: Event) -> None:
        if isinstance(event, ReplicaJoined):
            self._fleet_of[event.replica_id] = fleet
        elif isinstance(event, ReplicaLeft):
            self._fleet_of.pop(event.replica_id, None)
        post(event)

    def add(self, program: Program) -> bool:
        """Offers a program to one fleet after the other."""
        return any(fleet.add(program) for fleet in self._fleets)

    def remove(self, program: str) -> None:
        for fleet in self._fleets:
            fleet.remove(program)

    def dispatch(self, action: DispatchBatch) -> None:
        """Runs a batch. If its replica has left, the engine is about to learn that."""
        if (fleet := self._fleet_of.get(action.replica_id)) is not None:
            fleet.dispatch(action)

    def control(self, action: BatchControl) -> None:
        """Passes something on to a batch that runs."""
        if (fleet := self._fleet_of.get(action.replica_id)) is not None:
            fleet.control(action)

    def end_turn(self) -> None:
        for fleet in self._fleets:
            fleet.end_turn()

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Tells all fleets: any replica may hold a block, or a copy."""
        for fleet in self._fleets:
            fleet.release(blocks)

    def stage(self, replica_id: str, tensors: Sequence[TensorRef]) -> None:
        if (fleet := self._fleet_of.get(replica_id)) is not None:
            fleet.stage(replica_id, tensors)

    def give_up(self, replica_id: str, reason: str) -> None:
        if (fleet := self._fleet_of.get(replica_id)) is not None:
            fleet.give_up(replica_id, reason)

    def want(self, program: str, num_warm: int, num_parked: int) -> bool:
        """Tells the first fleet that has replicas of the program."""
        return any(fleet.want(program, num_warm, num_parked) for fleet in self._fleets)

    def park(self, replica_id: str) -> None:
        if (fleet := self._fleet_of.get(replica_id)) is not None:
            fleet.park(replica_id)

    def set_logs(self, config: LogsConfig) -> None:
        for fleet in self._fleets:
            fleet.set_logs(config)

    def start_over(self) -> None:
        for fleet in self._fleets:
            fleet.start_over()

    def report(self) -> Mapping[str, int]:
        return {name: number for fleet in self._fleets for name, number in fleet.report().items()}
