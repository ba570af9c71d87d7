"""Processes that hold residents, and the replicas in them."""

from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.events import ReplicaJoined
from dyorc.engine.scheduling.replica_pools import ReplicaPool


class Process:
    """A process in which programs of one group run and hand residents to each other.

    Attributes:
        replica_ids: The replicas in it, also those that are parked.
    """

    __slots__ = ("name", "replica_ids")

    def __init__(self, name: str) -> None:
        self.name = name
        self.replica_ids: set[str] = set()


class Processes:
    """All processes that hold residents. A process is there from the first of its replicas to the last."""

    def __init__(self, leases: BlockLeases) -> None:
        self._leases = leases
        self._of_replica: dict[str, Process] = {}
        self.by_name: dict[str, Process] = {}

    def join(self, event: ReplicaJoined, pool: ReplicaPool) -> Process | None:
        """Returns the process of a replica that has joined; None if its program neither has residents nor is in a group."""
        program = pool.program
        if not program.signature.residents and program.options.group is None:
            return None
        name = event.process or event.replica_id
        process = self.by_name.get(name)
        if process is None:
            process = self.by_name[name] = Process(name)
            self._leases.holder_joined(name)
        process.replica_ids.add(event.replica_id)
        self._of_replica[event.replica_id] = process
        return process

    def leave(self, replica_id: str) -> bool:
        """Removes a replica that is gone. Returns whether residents were lost with it."""
        process = self._of_replica.pop(replica_id, None)
        if process is None:
            return False
        process.replica_ids.discard(replica_id)
        if process.replica_ids:
            return False
        del self.by_name[process.name]
        return self._leases.holder_left(process.name)
