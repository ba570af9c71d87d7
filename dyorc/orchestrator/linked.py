"""An orchestrator whose replicas dial in: wiring only."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from dyorc.authoring.program import Program
from dyorc.config import EngineConfig
from dyorc.orchestrator.link_fleet import LinkFleet, Site
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.orchestrator.tensors import OWN, Tensors
from dyorc.status import StatusBoard
from dyorc.transport.exchange import Exchange


class Linked(NamedTuple):
    """A running orchestrator, and where its replicas dial in."""

    orchestrator: Orchestrator
    address: str


@asynccontextmanager
async def linked(programs: Sequence[Program], config: EngineConfig, site: Site) -> AsyncGenerator[Linked]:
    """Runs an orchestrator while entered.

    Raises:
        TransportError: If no arena can be made, or the address cannot be listened on.
    """
    tensors = Tensors(Exchange(OWN, site.node, site.transport, site.network))
    status = StatusBoard(programs)
    fleet = LinkFleet(site, tensors, status)
    async with Orchestrator(programs, config, tensors, status, fleet) as orchestrator:
        yield Linked(orchestrator, fleet.address)
