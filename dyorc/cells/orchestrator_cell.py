"""A cell: an orchestrator whose programs run in its own process. Wiring only.

The functions return an orchestrator, to be entered."""

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.cells.batches import CrashNotes
from dyorc.cells.local_fleet import CellSite, LocalFleet
from dyorc.config import CellsConfig, OrchestratorConfig, Settings, TransportConfig
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.system.processors import num_processors
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.transport.cluster_network import NodeNetwork
from dyorc.transport.tensor_path import TensorExchange

_NODE = "cell"
_INLINE_LIMIT_BYTES = 2**20
"""Up to this size, copying a tensor costs less than managing it in the arena."""


def make_cell(
    repertoire: ModelRegistry,
    config: OrchestratorConfig,
    transport: TransportConfig,
    cells: CellsConfig,
    num_cells: int = 1,
    notes: CrashNotes | None = None,
    spans: ProgramSpans | None = None,
) -> Orchestrator:
    """Returns a cell whose tensors no other process reads. Entering it raises TransportError if no arena can be made.

    Args:
        num_cells: How many cells share this machine.
        notes: Notes what runs.
        spans: Where spans of the programs' code go.
    """
    if transport.inline_limit_bytes is None:
        transport = transport.model_copy(update={"inline_limit_bytes": _INLINE_LIMIT_BYTES})
    num_cores = max(1, num_processors() // num_cells)
    site = CellSite(config=cells, node=_NODE, num_cores=num_cores, room_wait_s=transport.arena_wait_s, notes=notes, spans=spans)
    return _make(repertoire, config, TensorExchange(OWN, _NODE, transport, is_alone=True), site)


def make_shared_cell(
    repertoire: ModelRegistry, settings: Settings, node: str, network: NodeNetwork | None, spans: ProgramSpans | None = None
) -> Orchestrator:
    """Returns a cell whose requests come from gateways in other processes: large tensors are in shared memory. Entering it raises
    TransportError if no arena can be made, or other machines cannot be let in.

    Args:
        node: This machine, as gateways name it.
        network: How this process reaches other machines; None without any.
        spans: Where spans of the programs' code go.
    """
    site = CellSite(
        config=settings.cells, node=node, num_cores=num_processors(),
        room_wait_s=settings.transport.arena_wait_s, spans=spans,
    )  # fmt: skip
    return _make(repertoire, settings.orchestrator, TensorExchange(OWN, node, settings.transport, network), site)


def _make(repertoire: ModelRegistry, config: OrchestratorConfig, exchange: TensorExchange, site: CellSite) -> Orchestrator:
    tensors, status = Tensors(exchange), StatusBoard(repertoire.programs)
    return Orchestrator(repertoire, config, tensors, status, LocalFleet(repertoire.programs, site, tensors, status))
