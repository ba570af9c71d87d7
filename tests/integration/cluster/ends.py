"""Gateways' ends, before orchestrators of this process: everything between the two is real."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator

from dyorc.answering.tensor_exchange import Tensors
from dyorc.cluster.gateway_server import GatewayServer
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.config import TransportConfig
from dyorc.leader_election.leader import Leader, LeaderTerm
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.telemetry.histories.history_recorder import HistoryRecorder
from dyorc.transport.cluster_network import NodeNetwork
from dyorc.transport.tensor_path import TensorExchange
from tests.integration.stack import FAST_LINK, FAST_TRANSPORT


class Told:
    """Says what a test has told: who leads a group."""

    def __init__(self, group: str = "default", leader: Leader | None = None) -> None:
        self.group = group
        self.leader = leader
        self._changed = asyncio.Event()

    def tell(self, gateway_server: GatewayServer, fence: int = 1, node: str = "here") -> None:
        """Makes the owner of this server the leader."""
        self.leader = Leader(group=self.group, fence=fence, address=gateway_server.address, node=node)
        self._changed.set()

    def look(self) -> None:
        """Does nothing: there is nowhere to look."""

    async def newer(self, than: int = 0) -> Leader:
        """Waits for a leader with a fence higher than `than`."""
        while self.leader is None or self.leader.fence <= than:
            self._changed.clear()
            await self._changed.wait()
        return self.leader


class Lead:
    """A lead that may be unsure, or lost."""

    def __init__(self) -> None:
        self.is_sure = True
        self.is_lost = False

    def term(self, fence: int = 1) -> LeaderTerm:
        """Returns it for a server."""
        return LeaderTerm(
            group="default", fence=fence, is_sure=lambda: self.is_sure, report_fence=lambda fence: None,
            is_lost=lambda: self.is_lost,
        )  # fmt: skip


@contextlib.asynccontextmanager
async def gateway_server_of(
    orchestrator: Orchestrator, address: str, network: NodeNetwork | None = None, histories: HistoryRecorder | None = None,
    lead: LeaderTerm | None = None,
) -> AsyncGenerator[GatewayServer]:  # fmt: skip
    """Lets gateways ask an orchestrator while entered."""
    keys = None if network is None else network.secrets.keys
    async with GatewayServer(orchestrator, address, FAST_LINK, keys=keys, histories=histories, lead=lead) as gateway_server:
        yield gateway_server


@contextlib.contextmanager
def arena_of(
    name: str, node: str = "here", network: NodeNetwork | None = None, transport: TransportConfig = FAST_TRANSPORT
) -> Generator[Tensors]:
    """Opens a gateway's arena."""
    with TensorExchange(name, node, transport, network) as exchange:
        tensors = Tensors(exchange)
        tensors.open()
        try:
            yield tensors
        finally:
            tensors.close()


@contextlib.asynccontextmanager
async def gateway(
    leaders: Told,
    name: str = "gateway-1",
    node: str = "here",
    network: NodeNetwork | None = None,
    transport: TransportConfig = FAST_TRANSPORT,
) -> AsyncGenerator[RemoteBackend]:
    """Runs a gateway's end while entered; on another node than the orchestrator it shares no memory with it."""
    keys = None if network is None else network.secrets.keys
    with arena_of(name, node, network, transport) as tensors:
        async with RemoteBackend(leaders, tensors, FAST_LINK, keys) as backend:
            yield backend
