"""What runs the programs of a server: Ray's replicas, this process, or both. Wiring only.

What one of them does not need is not imported.
"""

import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING

from dyorc.authoring.program import Program
from dyorc.config import Settings
from dyorc.deployment.server_runtime import MACHINE, Places, ServerRuntime
from dyorc.leader_election.leader import LeaderTerm
from dyorc.models.registry import ModelRegistry
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.telemetry.tracing.tracing_setup import TraceOutput

if TYPE_CHECKING:
    from dyorc.cells.notes import CrashNotes
    from dyorc.orchestrator.linked_orchestrator import MakeFleet
    from dyorc.ray_serve.head_start import HeadStart
    from dyorc.ray_serve.libraries import UserImports
    from dyorc.transport.network import NodeNetwork


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
        notes: Where it is noted what runs.
        traces: Where spans go; None if nothing is traced.

    Raises:
        TransportError: If no arena can be made.
    """
    from dyorc.cells.cell import cell

    sections = settings.orchestrator, settings.transport, settings.cells
    spans = None if traces is None else traces.spans
    async with cell(repertoire, *sections, num_cells, notes, spans) as orchestrator:
        yield ServerRuntime(orchestrator, _nothing, _no_complaints, _nothing, _nothing)


@contextlib.asynccontextmanager
async def for_gateways(
    repertoire: ModelRegistry, settings: Settings, network: "NodeNetwork | None", traces: TraceOutput | None = None
) -> AsyncGenerator[ServerRuntime]:
    """Runs all programs in this process, without Ray, for gateways in other processes.

    Args:
        network: This process's place among other machines; None without others.
        traces: Where spans go; None if nothing is traced.

    Raises:
        TransportError: If no arena can be made, or other machines cannot be let in.
    """
    from dyorc.cells.cell import shared_cell

    node = MACHINE if network is None else network.host
    async with shared_cell(repertoire, settings, node, network, None if traces is None else traces.spans) as orchestrator:
        yield ServerRuntime(orchestrator, _nothing, _no_complaints, _nothing, _nothing)


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
        places: Its programs.
        imports: What the programs' modules import.
        start: For a Ray of our own; None for an existing one.
        traces: Where spans go; None if nothing is traced.
        lead: The leadership by which it runs them; None if there is no other orchestrator.

    Raises:
        ConfigurationError: If the next leader could not reach its replicas, for want of the cluster's keys.
        LaunchError: If Ray cannot be started.
        TransportError: If no arena can be made, or replicas cannot be listened to.
    """
    from dyorc.orchestrator.link_fleet import Site
    from dyorc.orchestrator.linked_orchestrator import linked_orchestrator
    from dyorc.ray_serve.local_ray import LocalRay
    from dyorc.ray_serve.ray_cluster import RayCluster

    local = [program for program in places if program.options.in_process]
    remote = {program: source for program, source in places.items() if not program.options.in_process}
    wanted = imports, remote, settings, None if traces is None else traces.destination
    async with RayCluster(*wanted, lead) if start is None else LocalRay(start, *wanted) as ray:
        site = Site(
            address=ray.link_address, link=settings.link, transport=settings.transport, node=ray.node, network=ray.network,
            end=ray.end_replica, scale=ray.replicas.scale, lead=lead, plans=ray.replicas.plans,
        )  # fmt: skip
        beside = _beside_replicas(local, settings, ray.node, None if traces is None else traces.spans) if local else None
        async with linked_orchestrator(repertoire, settings.orchestrator, site, beside) as (orchestrator, address):
            found = ray.replicas
            yield ServerRuntime(orchestrator, lambda: ray.deploy(address), found.complaints, found.add, found.remove, address)


def _beside_replicas(programs: list[Program], settings: Settings, node: str, spans: ProgramSpans | None) -> "MakeFleet":
    """Returns what makes the fleet of programs that run here although others are on Ray."""
    from dyorc.cells.local_fleet import CellSite, LocalFleet

    site = CellSite(
        config=settings.cells,
        node=node,
        num_cores=os.cpu_count() or 1,
        is_alone=False,
        room_wait_s=settings.transport.arena_wait_s,
        spans=spans,
    )
    return lambda tensors, status: LocalFleet(programs, site, tensors, status)


async def _nothing(*_: object) -> None:
    pass


async def _no_complaints() -> Mapping[str, str]:
    return {}
