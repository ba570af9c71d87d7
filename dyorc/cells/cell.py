"""A cell: an orchestrator whose programs run in its own process. Wiring only."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dyorc.cells.local_fleet import CellSite, LocalFleet
from dyorc.cells.notes import Notes
from dyorc.config import CellsConfig, OrchestratorConfig, TransportConfig
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.orchestrator.tensors import OWN, Tensors
from dyorc.repertoire import Repertoire
from dyorc.status import StatusBoard
from dyorc.telemetry.tracing.programs import ProgramSpans
from dyorc.transport.exchange import Exchange

_NODE = "cell"
_UNLIMITED = 2**62


@asynccontextmanager
async def cell(
    repertoire: Repertoire,
    config: OrchestratorConfig,
    transport: TransportConfig,
    cells: CellsConfig,
    num_cells: int = 1,
    notes: Notes | None = None,
    spans: ProgramSpans | None = None,
) -> AsyncGenerator[Orchestrator]:
    """Runs an orchestrator while entered. No process but this one reads tensors, so all are arrays, of any size.

    Args:
        num_cells: How many cells share this machine.
        notes: Where it is noted what runs.
        spans: Where spans of the programs' code go.

    Raises:
        TransportError: If no arena can be made.
    """
    transport = transport.model_copy(update={"inline_limit_bytes": _UNLIMITED})
    tensors = Tensors(Exchange(OWN, _NODE, transport))
    status = StatusBoard(repertoire.programs)
    num_cores = max(1, len(os.sched_getaffinity(0)) // num_cells)
    site = CellSite(config=cells, node=_NODE, num_cores=num_cores, notes=notes, spans=spans)
    fleet = LocalFleet(repertoire.programs, site, tensors, status)
    async with Orchestrator(repertoire, config, tensors, status, fleet) as orchestrator:
        tensors.exchange.arena.hide()
        yield orchestrator
