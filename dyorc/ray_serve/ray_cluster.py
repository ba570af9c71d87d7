# pyright: basic
# Ray ships no complete types.
"""Keeps replicas on an existing Ray cluster, on any of its nodes.

An orchestrator that leads a group leaves them loaded when it ends; the next leader takes them over.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Self

from dyorc.authoring.program import Program
from dyorc.config import Settings
from dyorc.errors import ConfigurationError, DefinitionError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.ray_serve.persistent_applications import PersistentApplications
from dyorc.ray_serve.ray_connection import connect, disconnect, start_with_retry
from dyorc.ray_serve.replica_processes import end_replica_process
from dyorc.ray_serve.replica_specs import ReplicaSpecs, libraries_of_plans
from dyorc.ray_serve.serve_replicas import ServeReplicas
from dyorc.ray_serve.user_imports import UserImports
from dyorc.replica.assignment import ForkServerSpec, OrchestratorGroup, ProgramSource, Uplink
from dyorc.store.sqlite import default_path
from dyorc.telemetry.tracing.destination import Destination
from dyorc.transport.arena_file import sweep
from dyorc.transport.cluster_network import ClusterSecrets, NodeNetwork, read_keys


class RayCluster:
    """A connection to a cluster, while entered. Removes its replicas at the end, unless it leads a group; the cluster stays.

    Args:
        programs: Each program with the place where its replicas find it.
        imports: What the user's modules import.
        spans: Where spans of the programs' code go; None if nothing is traced.
        lead: This process's leadership; None if it leads no group.

    Raises:
        DefinitionError: If there is no address at which the replicas find this machine.
        ConfigurationError: If it leads a group, and the keys of the cluster cannot be read.
    """

    def __init__(
        self,
        imports: UserImports,
        programs: Mapping[Program, ProgramSource],
        settings: Settings,
        spans: Destination | None = None,
        lead: LeaderTerm | None = None,
    ) -> None:
        deployment, link = settings.deployment, settings.link
        if not link.host:
            raise DefinitionError("replicas on a Ray cluster need to find this machine: set DYORC_LINK__HOST to its address")
        self._settings = settings
        self._is_lasting = lead is not None
        self.network = NodeNetwork(host=link.host, secrets=_keys(settings, is_needed=self._is_lasting))
        name = secrets.token_hex(4) if lead is None else lead.group
        place = ForkServerSpec(folder=f"dyorc-forks-{name}", modules=(*imports.libraries, *libraries_of_plans(programs)))
        plans = ReplicaSpecs(programs, deployment, place, None, link.kill_after_s)
        uplink = Uplink(
            address="", link=link, transport=settings.transport, logs=settings.telemetry.logs, secrets=self.network.secrets,
            spans=spans, group=None if lead is None else OrchestratorGroup(name=lead.group, store=settings.store or f"sqlite://{default_path()}"),
        )  # fmt: skip
        lasting = None if lead is None else PersistentApplications(lead.group, imports.code, uplink)
        self.replicas = ServeReplicas(plans, deployment, uplink, lasting=lasting)

    async def __aenter__(self) -> Self:
        name = f"replicas on the Ray cluster {self._settings.deployment.ray_address}"
        await start_with_retry(name, lambda: connect(self._settings), disconnect, max_attempts=1)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.replicas.stop_asking()
        try:
            if not self._is_lasting:
                await self.replicas.delete()
        finally:
            await asyncio.to_thread(disconnect)
            sweep(self._settings.transport.arena_folder)

    async def deploy(self, address: str) -> None:
        """Deploys all replicas. They dial in to `address` as they come up.

        Raises:
            LaunchError: If Serve refuses them.
        """
        await self.replicas.prepare_all(address)
        await self.replicas.deploy()

    @property
    def link_address(self) -> str:
        """Where the orchestrator should listen."""
        link = self._settings.link
        host = f"[{link.host}]" if ":" in link.host else link.host
        return f"tcp://{host}:{link.port or '*'}"

    @property
    def node(self) -> str:
        """The name of this machine, as the replicas on it know it."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def end_replica(self, pid: int) -> None:
        """Kills a replica's process on this machine, if it still runs; its Serve replica forks another.

        In a group, a replica may just have left for another leader: then its Serve replica watches it, and nothing is killed
        here.
        """
        if not self._is_lasting:
            end_replica_process(pid)


def _keys(settings: Settings, *, is_needed: bool) -> ClusterSecrets:
    """Returns the cluster's keys: replicas of an earlier leader know only those."""
    if settings.cluster.keys_file:
        return read_keys(settings.cluster.keys_file)
    if is_needed:
        raise ConfigurationError(
            "replicas on a Ray cluster outlive their orchestrator, and need the same keys as the next one: make a file with "
            "`dyorc cluster-keys FILE`, and set cluster.keys_file to it"
        )
    return ClusterSecrets.generate()
