"""Where an orchestrator's gateways dial in."""

import contextlib
import tempfile
from collections.abc import AsyncGenerator

from dyorc.cluster.gateway_server import GatewayServer
from dyorc.config import Settings
from dyorc.leader_election.leader import LeaderTerm
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.transport.network import NodeNetwork


@contextlib.asynccontextmanager
async def gateway_listener(
    orchestrator: Orchestrator, settings: Settings, lead: LeaderTerm, network: NodeNetwork | None
) -> AsyncGenerator[GatewayServer]:
    """Lets gateways dial in while entered.

    Args:
        network: The process's place among other machines; without others, gateways come by a socket that only this user can
            reach.

    Raises:
        TransportError: If the address cannot be listened on.
    """
    with tempfile.TemporaryDirectory(prefix="dyorc-desk-") as folder:
        if network is None:
            address, keys = f"unix://{folder}/desk", None
        else:
            host = f"[{network.host}]" if ":" in network.host else network.host
            address, keys = f"tcp://{host}:{settings.cluster.port or '*'}", network.secrets.keys
        timeout_s = settings.engine.request_timeout_s
        async with GatewayServer(
            orchestrator, address, settings.link, default_timeout_s=timeout_s, keys=keys, lead=lead
        ) as gateways:
            yield gateways
