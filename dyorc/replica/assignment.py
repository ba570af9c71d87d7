"""What a replica is told before it starts: whose copy it is, where its program is found, and how it reaches the others."""

from dataclasses import dataclass

from dyorc.config import LinkConfig, TransportConfig
from dyorc.transport.link import ReplicaEnd, dial
from dyorc.transport.network import Network, Secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a replica finds its program.

    Attributes:
        folder: Working directory of the server, in which modules are found.
        target: What is imported there, e.g. ``/app/flow.py:classify``.
        program: The name of one of the target's programs.
    """

    folder: str
    target: str
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which copy of which program a replica is, and where it runs.

    Attributes:
        replica_id: Unique name of this copy.
        program: The program's name, known before the program is found.
        node: Name of the machine.
        host: The machine's address, as other nodes reach it; not used on one node.
        num_cores: The machine's cores, if the program runs on them; 0 for a device of its own.
    """

    replica_id: str
    program: str
    node: str
    host: str = ""
    num_cores: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """How replicas reach the orchestrator, and tensors that others hold. The same for all of a server's replicas.

    Attributes:
        address: Where the orchestrator listens.
        link: Settings of the link to it.
        transport: Settings of the tensor path.
        secrets: Keys by which the processes of several nodes recognize each other; None on one node.
    """

    address: str
    link: LinkConfig
    transport: TransportConfig
    secrets: Secrets | None = None

    def network(self, host: str) -> Network | None:
        """Returns the place of a process on `host` among other nodes; None without other nodes."""
        return None if self.secrets is None else Network(host=host, secrets=self.secrets)

    def dial(self, receive_timeout_s: float) -> ReplicaEnd:
        """Connects to the orchestrator. Receiving gives up after this time."""
        return dial(self.address, self.link, receive_timeout_s, keys=None if self.secrets is None else self.secrets.keys)
