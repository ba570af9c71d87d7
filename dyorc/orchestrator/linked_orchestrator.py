"""An orchestrator whose replicas dial in: wiring only."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeAlias

from dyorc.answering.tensor_exchange import OWN, Tensors
from dyorc.config import OrchestratorConfig
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.fleet import Fleet, Fleets
from dyorc.orchestrator.link_fleet import LinkFleet, Site
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.transport.tensor_path import TensorExchange

MakeFleet: TypeAlias = Callable[[Tensors, StatusBoard], Fleet]


class LinkedOrchestrator(NamedTuple):
    """A running orchestrator, and the address where its replicas dial in."""

    orchestrator: Orchestrator
    address: str


@asynccontextmanager
async def linked_orchestrator(
    registry: ModelRegistry, config: OrchestratorConfig, site: Site, make_fleet: MakeFleet | None = None
) -> AsyncGenerator[LinkedOrchestrator]:
    """Runs an orchestrator while entered.

    Args:
        make_fleet: Makes a second fleet, for programs whose replicas do not dial in.

    Raises:
        TransportError: If no arena can be made, or the address cannot be listened on.
    """
    tensors = Tensors(TensorExchange(OWN, site.node, site.transport, site.network))
    status = StatusBoard(registry.programs)
    link = LinkFleet(site, tensors, status)
    fleet = link if make_fleet is None else Fleets([make_fleet(tensors, status), link])  # replicas of all other programs dial in
    async with Orchestrator(registry, config, tensors, status, fleet) as orchestrator:
        yield LinkedOrchestrator(orchestrator, link.address)
