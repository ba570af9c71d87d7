"""A cell: an orchestrator whose programs run in its own process. Wiring only."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.cells.local_fleet import CellSite, LocalFleet
from dyorc.cells.notes import CrashNotes
from dyorc.config import CellsConfig, OrchestratorConfig, Settings, TransportConfig
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.transport.exchange import TensorExchange
from dyorc.transport.network import NodeNetwork

_NODE = "cell"
_INLINE_LIMIT_BYTES = 2**20
"""Up to this size, copying a tensor costs less than keeping account of it in the arena."""


@asynccontextmanager
async def shared_cell(
    repertoire: ModelRegistry, settings: Settings, node: str, network: NodeNetwork | None, spans: ProgramSpans | None = None
) -> AsyncGenerator[Orchestrator]:
    """Runs a cell whose requests come from gateways in other processes while entered: large tensors lie in shared memory.

    Args:
        node: This machine, as gateways name it.
        network: This process's place among other machines; None without others.
        spans: Where spans of the programs' code go.

    Raises:
        TransportError: If no arena can be made, or other machines cannot be let in.
    """
    tensors = Tensors(TensorExchange(OWN, node, settings.transport, network))
    status = StatusBoard(repertoire.programs)
    site = CellSite(
        config=settings.cells, node=node, num_cores=len(os.sched_getaffinity(0)),
        room_wait_s=settings.transport.arena_wait_s, spans=spans,
    )  # fmt: skip
    fleet = LocalFleet(repertoire.programs, site, tensors, status)
    async with Orchestrator(repertoire, settings.orchestrator, tensors, status, fleet) as orchestrator:
        yield orchestrator


@asynccontextmanager
async def cell(
    repertoire: ModelRegistry,
    config: OrchestratorConfig,
    transport: TransportConfig,
    cells: CellsConfig,
    num_cells: int = 1,
    notes: CrashNotes | None = None,
    spans: ProgramSpans | None = None,
) -> AsyncGenerator[Orchestrator]:
    """Runs an orchestrator while entered. No process but this one reads tensors.

    Args:
        num_cells: How many cells share this machine.
        notes: Where it is noted what runs.
        spans: Where spans of the programs' code go.

    Raises:
        TransportError: If no arena can be made.
    """
    if transport.inline_limit_bytes is None:
        transport = transport.model_copy(update={"inline_limit_bytes": _INLINE_LIMIT_BYTES})
    tensors = Tensors(TensorExchange(OWN, _NODE, transport, is_alone=True))
    status = StatusBoard(repertoire.programs)
    num_cores = max(1, len(os.sched_getaffinity(0)) // num_cells)
    site = CellSite(config=cells, node=_NODE, num_cores=num_cores, room_wait_s=transport.arena_wait_s, notes=notes, spans=spans)
    fleet = LocalFleet(repertoire.programs, site, tensors, status)
    async with Orchestrator(repertoire, config, tensors, status, fleet) as orchestrator:
        yield orchestrator
