"""Several fleets as one: some programs in this process, others in processes that dial in."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from dyorc.authoring.program import Program
from dyorc.config import LogsConfig
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.actions import DispatchBatch
from dyorc.engine.events import Event, ReplicaJoined, ReplicaLeft
from dyorc.orchestrator.fleet import Fleet


class Fleets:
    """Passes on what concerns a replica to the fleet that announced it, and everything else to all."""

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
        """Tells all fleets."""
        for fleet in self._fleets:
            fleet.remove(program)

    def dispatch(self, action: DispatchBatch) -> None:
        """Runs a batch. If its replica has left, the engine is about to be told."""
        fleet = self._fleet_of.get(action.replica_id)
        if fleet is not None:
            fleet.dispatch(action)

    def end_turn(self) -> None:
        """Tells all fleets."""
        for fleet in self._fleets:
            fleet.end_turn()

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Tells all fleets: any replica may hold a block, or a copy."""
        for fleet in self._fleets:
            fleet.release(blocks)

    def stage(self, replica_id: str, tensors: Sequence[TensorRef]) -> None:
        """Tells the replica's fleet."""
        fleet = self._fleet_of.get(replica_id)
        if fleet is not None:
            fleet.stage(replica_id, tensors)

    def give_up(self, replica_id: str, reason: str) -> None:
        """Tells the replica's fleet."""
        fleet = self._fleet_of.get(replica_id)
        if fleet is not None:
            fleet.give_up(replica_id, reason)

    def want(self, program: str, num_warm: int, num_parked: int) -> bool:
        """Tells the first fleet that has replicas of the program."""
        return any(fleet.want(program, num_warm, num_parked) for fleet in self._fleets)

    def park(self, replica_id: str) -> None:
        """Tells the replica's fleet."""
        fleet = self._fleet_of.get(replica_id)
        if fleet is not None:
            fleet.park(replica_id)

    def set_logs(self, config: LogsConfig) -> None:
        """Tells all fleets."""
        for fleet in self._fleets:
            fleet.set_logs(config)

    def start_over(self) -> None:
        """Tells all fleets."""
        for fleet in self._fleets:
            fleet.start_over()

    def report(self) -> Mapping[str, int]:
        """Returns the figures of all fleets."""
        return {name: number for fleet in self._fleets for name, number in fleet.report().items()}
