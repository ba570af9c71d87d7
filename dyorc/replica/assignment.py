"""What a replica gets before it starts: which program it copies, where to find it, and how to reach other processes."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
from pydantic import BaseModel

from dyorc.authoring.bundle_imports import BundleImporter
from dyorc.authoring.bundles import Bundle
from dyorc.authoring.loading import load, program_in
from dyorc.authoring.program import Program
from dyorc.config import LinkConfig, LogsConfig, TransportConfig
from dyorc.replica.user_code import import_on_own_thread
from dyorc.telemetry.tracing.destination import Destination
from dyorc.transport.cluster_network import ClusterSecrets, NodeNetwork
from dyorc.transport.link import ReplicaEnd, dial

DEVICE_VARIABLES = ("_VISIBLE_DEVICES", "_VISIBLE_CORES", "_VISIBLE_CHIPS", "_VISIBLE_MODULES", "FURIOSA_DEVICES", "RBLN_DEVICES")
"""How the names of variables end in which Ray says which devices a replica has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSource:
    """Where a replica finds its program.

    Attributes:
        folder: The server's working directory, in which modules are found.
        target: What is imported there, e.g. ``/app/flow.py:classify``.
        program: The name of one of the target's programs.
        served_as: Its unique name among all versions; empty: the same name.
        overrides: Its options that differ from those in its code.
        bundle: The code; None: it is on this machine's disk.
        code: A digest of its code; empty: the code that was on disk when the server started.
        plan: A digest of its code and options, where replicas outlive the orchestrator that requested them.
    """

    folder: str
    target: str
    program: str
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    bundle: Bundle | None = None
    code: str = ""
    plan: str = ""
    served_as: str = ""

    @property
    def name(self) -> str:
        """Its unique name among all versions, by which the orchestrator knows its replicas."""
        return self.served_as or self.program

    def load(self) -> Program:
        """Imports it, for a process that runs nothing else. Raises what `dyorc.authoring.loading.load` raises."""
        bundle = self.bundle
        definition = import_on_own_thread(partial(load, self.target) if bundle is None else BundleImporter(bundle).load)
        program = program_in(definition, self.target, self.program)
        object.__setattr__(program, "name", self.name)  # frozen everywhere else
        return program


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which copy of which program a replica is, and where it runs.

    Attributes:
        replica_id: Unique name of this copy.
        program: The program's name, known before the program is imported.
        node: Name of the machine.
        host: The machine's address for other nodes; not used on one node.
        num_cores: The machine's cores, if the program runs on them; 0 if it has its own device.
        device: Ray's name for its device, if it has one.
        process: The name of what it shares with other programs of its group (`ReplicaHello`); empty if it shares nothing.
    """

    replica_id: str
    program: str
    node: str
    host: str = ""
    num_cores: int = 0
    device: str = ""
    process: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorGroup:
    """A group of orchestrators with one leader.

    Attributes:
        name: Its name.
        store: The setting `STORE`, where its leader is found.
    """

    name: str
    store: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """How replicas reach the orchestrator, and tensors of other holders. The same for all of a server's replicas.

    Attributes:
        address: Where the orchestrator listens, or the one that led when the replica was requested.
        link: Settings of the link to it.
        transport: Settings of the tensor path.
        logs: How they log.
        secrets: Keys by which the processes of several nodes recognize each other; None on one node.
        spans: Where spans of the programs' code go; None if nothing is traced.
        group: The orchestrators whose leader replicas follow; None if there is only one orchestrator.
    """

    address: str
    link: LinkConfig
    transport: TransportConfig
    logs: LogsConfig = field(default_factory=LogsConfig)
    secrets: ClusterSecrets | None = None
    spans: Destination | None = None
    group: OrchestratorGroup | None = None

    def network(self, host: str) -> NodeNetwork | None:
        """Returns how a process on `host` reaches other nodes; None without any."""
        return None if self.secrets is None else NodeNetwork(host=host, secrets=self.secrets)

    def dial(self, receive_timeout_s: float, address: str) -> ReplicaEnd:
        """Connects to the orchestrator at this address. Receiving gives up after this time."""
        return dial(address, self.link, receive_timeout_s, keys=None if self.secrets is None else self.secrets.keys)


def _values_of(section: BaseModel) -> dict[str, Any]:
    return section.model_dump(mode="json")


def _section_of(kind: type[BaseModel], values: Any) -> BaseModel:
    return kind.model_validate(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    """All that a forked process needs to become a replica, or the replicas of a group of programs.

    Attributes:
        source: Where it finds its program; of a group, the first one.
        identity: Which replica it is; of a group, the first one.
        group: The group whose programs share the process, and residents; empty: it has one program, without residents.
        companions: Where it finds the group's other programs.
        num_threads: Threads that its program should use.
        graceful_s: How long its running batch may take once it has no owner.
        environment: Variables that differ from the fork server's.
    """

    source: ProgramSource
    identity: Identity
    uplink: Uplink
    num_threads: int
    graceful_s: float
    environment: dict[str, str] = field(default_factory=dict[str, str])
    group: str = ""
    companions: tuple[ProgramSource, ...] = ()

    @property
    def replicas(self) -> list[tuple[ProgramSource, Identity]]:
        """The replicas in the process: where each finds its program, and which it is."""
        token = self.identity.replica_id.rpartition("#")[2]
        first = replace(self.identity, process=f"{self.group}#{token}" if self.group else "")
        others = [
            (source, replace(first, replica_id=f"{source.name}#{token}", program=source.name)) for source in self.companions
        ]
        return [(self.source, first), *others]

    @property
    def key(self) -> str:
        """Identifies its programs: processes with the same key can replace each other."""
        source, bundle = self.source, self.source.bundle
        code = source.plan if bundle is None else bundle.digest
        others = "".join(f"+{other.name}" for other in self.companions)
        return f"{source.target}|{source.program}{others}|{self.identity.program}|{code}"

    def for_another(self) -> "ReplicaAssignment":
        """Returns the assignment of another copy."""
        return replace(self, identity=replace(self.identity, replica_id=new_replica_id(self.identity.program)))

    def to_json(self) -> str:
        """Returns it as text."""
        return msgspec.json.encode(self, enc_hook=_values_of).decode()

    @classmethod
    def from_json(cls, text: str) -> "ReplicaAssignment":
        """Returns the assignment that `to_json` has encoded."""
        return msgspec.json.decode(text, type=cls, dec_hook=_section_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkServerSpec:
    """A node's fork server.

    Attributes:
        folder: Its folder, below the node's folder for temporary files if it is relative.
        modules: What it imports beyond what every replica needs.
        home: The folder of its server, if that has its own Ray; otherwise empty.
    """

    folder: str
    modules: tuple[str, ...] = ()
    home: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """How a Serve replica keeps its process.

    Attributes:
        place: Where it is forked.
        num_threads: Threads that the program should use.
        environment: Variables that differ from the fork server's.
        graceful_s: How long its running batch may take when it should end.
        ping_s: How often the process is pinged.
        answer_timeout_s: How long it may take to answer.
        stopped_timeout_s: How long it may be stopped.
        node: Name of the machine; None: Ray's name for it.
    """

    place: ForkServerSpec
    num_threads: int
    environment: Mapping[str, str]
    graceful_s: float
    ping_s: float
    answer_timeout_s: float
    stopped_timeout_s: float
    node: str | None = None


def new_replica_id(program: str) -> str:
    """Returns a unique name for a copy of a program."""
    return f"{program}#{secrets.token_hex(5)}"
