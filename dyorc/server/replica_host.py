"""What runs replicas in processes of their own, as an orchestrator sees it: our own Ray, or a cluster's."""

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from dyorc.authoring.program import Program
from dyorc.deployment.loaded_versions import Places
from dyorc.transport.cluster_network import NodeNetwork


class ReplicaSupervisor(Protocol):
    """Keeps as many processes of each program as are wanted, and replaces each that ends."""

    @property
    def plans(self) -> Mapping[str, str]:
        """A digest for the code and options of each program; empty if replicas do not outlive this process."""
        ...

    def scale(self, program: str, num_processes: int) -> None:
        """Keeps this many processes of a program from now on. Does not wait."""
        ...

    async def complaints(self) -> Mapping[str, str]:
        """Returns what keeps programs from starting, by program."""
        ...

    async def add(self, places: Places) -> None:
        """Starts replicas of other programs. Raises LaunchError if that is refused."""
        ...

    async def remove(self, program: Program) -> None:
        """Ends the replicas of a program, and waits for that."""
        ...


class ReplicaHost(Protocol):
    """Starts processes and supervises them while it is entered."""

    @property
    def replicas(self) -> ReplicaSupervisor:
        """The supervision of the replicas."""
        ...

    @property
    def network(self) -> NodeNetwork | None:
        """This process's place among other nodes; None without other nodes."""
        ...

    @property
    def link_address(self) -> str:
        """Where the orchestrator should listen."""
        ...

    @property
    def node(self) -> str:
        """The name of this machine, as its replicas know it."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    async def deploy(self, address: str) -> None:
        """Starts all replicas, which dial in to `address`. Raises LaunchError if that is refused."""
        ...

    def end_replica(self, pid: int) -> None:
        """Ends a replica's process on this machine that was given up, if it still runs."""
        ...
