"""Starts what runs the programs of a server: Ray's replicas, this process, or both. Wiring only.

Each function imports what only it needs.
"""

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from dyorc.authoring.program import Program
from dyorc.config import Settings
from dyorc.deployment.loaded_versions import Places, ServerRuntime
from dyorc.leader_election.leader import LeaderTerm
from dyorc.models.registry import ModelRegistry
from dyorc.server.replica_host import ReplicaHost
from dyorc.system.processors import num_processors
from dyorc.telemetry.tracing.destination import Destination
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.telemetry.tracing.tracer import TraceOutput

if TYPE_CHECKING:
    from dyorc.cells.batches import CrashNotes
    from dyorc.orchestrator.linked_orchestrator import MakeFleet
    from dyorc.ray_serve.ray_home import HeadStart
    from dyorc.ray_serve.user_imports import UserImports
    from dyorc.transport.cluster_network import NodeNetwork


@contextlib.asynccontextmanager
async def in_process(
    repertoire: ModelRegistry,
    settings: Settings,
    num_cells: int = 1,
    notes: "CrashNotes | None" = None,
    traces: TraceOutput | None = None,
) -> AsyncGenerator[ServerRuntime]:
    """Runs all programs in this process, without Ray.

    Args:
        num_cells: How many such processes share this machine.
        notes: Notes what runs.
        traces: Where spans go; None if nothing is traced.

    Raises:
        TransportError: If no arena can be made.
    """
    from dyorc.cells.orchestrator_cell import make_cell

    sections = settings.orchestrator, settings.transport, settings.cells
    spans = None if traces is None else traces.spans
    async with make_cell(repertoire, *sections, num_cells, notes, spans) as orchestrator:
        yield ServerRuntime(orchestrator)


@contextlib.asynccontextmanager
async def for_gateways(
    repertoire: ModelRegistry, settings: Settings, network: "NodeNetwork | None", traces: TraceOutput | None = None
) -> AsyncGenerator[ServerRuntime]:
    """Runs all programs in this process, without Ray, for gateways in other processes.

    Args:
        network: How this process reaches other machines; None without any.
        traces: Where spans go; None if nothing is traced.

    Raises:
        TransportError: If no arena can be made, or other machines cannot be let in.
    """
    from dyorc.cells.orchestrator_cell import make_shared_cell
    from dyorc.transport.cluster_network import node_name

    node, spans = node_name(network), None if traces is None else traces.spans
    async with make_shared_cell(repertoire, settings, node, network, spans) as orchestrator:
        yield ServerRuntime(orchestrator)


@contextlib.asynccontextmanager
async def on_ray(
    repertoire: ModelRegistry,
    places: Places,
    settings: Settings,
    imports: "UserImports",
    start: "HeadStart | None",
    traces: TraceOutput | None = None,
    lead: LeaderTerm | None = None,
) -> AsyncGenerator[ServerRuntime]:
    """Runs programs on Ray, and ``in_process`` programs here.

    Args:
        places: Each program with the place where its replicas find it.
        imports: What the programs' modules import.
        start: For our own Ray; None for an existing one.
        traces: Where spans go; None if nothing is traced.
        lead: This process's lead of its group; None if there are no other orchestrators.

    Raises:
        DefinitionError: If only some programs of a group are ``in_process``, or those on Ray contradict each other.
        ConfigurationError: If the cluster's keys are missing, without which the next leader could not reach the replicas.
        LaunchError: If Ray cannot be started.
        TransportError: If no arena can be made, or replicas cannot be listened to.
    """
    from dyorc.orchestrator.link_fleet import Site
    from dyorc.orchestrator.linked_orchestrator import linked_orchestrator
    from dyorc.ray_serve.replica_groups import refuse_split_groups, settle_places

    local = [program for program in places if program.options.in_process]
    remote = {program: source for program, source in places.items() if not program.options.in_process}
    refuse_split_groups(local, list(remote))
    async with ray_host(imports, remote, settings, start, None if traces is None else traces.destination, lead) as host:
        site = Site(
            address=host.link_address, link=settings.link, transport=settings.transport, node=host.node, network=host.network,
            end=host.end_replica, scale=host.replicas.scale, lead=lead, plans=host.replicas.plans,
        )  # fmt: skip
        make_local = _local_fleet(local, settings, host.node, None if traces is None else traces.spans) if local else None
        async with linked_orchestrator(repertoire, settings.orchestrator, site, make_local) as (orchestrator, address):
            replicas = host.replicas
            yield ServerRuntime(
                orchestrator, lambda: host.deploy(address), replicas.complaints, settle_places, replicas.add, replicas.remove,
                address,
            )  # fmt: skip


def ray_host(
    imports: "UserImports", programs: Places, settings: Settings, start: "HeadStart | None", spans: Destination | None,
    lead: LeaderTerm | None,
) -> ReplicaHost:  # fmt: skip
    """Returns what runs replicas. The one place that chooses it: a test may put another host here.

    Raises:
        DefinitionError, ConfigurationError: See `on_ray`.
    """
    from dyorc.ray_serve.local_ray import LocalRay
    from dyorc.ray_serve.ray_cluster import RayCluster

    if start is None:
        return RayCluster(imports, programs, settings, spans, lead)
    return LocalRay(start, imports, programs, settings, spans)


def _local_fleet(programs: list[Program], settings: Settings, node: str, spans: ProgramSpans | None) -> "MakeFleet":
    """Returns a function that makes the fleet of the programs in this process, next to those on Ray."""
    from dyorc.cells.local_fleet import CellSite, LocalFleet

    site = CellSite(
        config=settings.cells, node=node, num_cores=num_processors(), runs_all=False,
        room_wait_s=settings.transport.arena_wait_s, spans=spans,
    )  # fmt: skip
    return lambda tensors, status: LocalFleet(programs, site, tensors, status)
