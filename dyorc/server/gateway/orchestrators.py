"""What a gateway has of the cluster: its own shared memory, and a backend that follows the leaders of its groups."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from dyorc.answering.tensor_exchange import Tensors
from dyorc.cluster.control_client import ControlClient
from dyorc.cluster.groups_backend import GroupsBackend
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.config import Settings
from dyorc.deployment.server_runtime import MACHINE
from dyorc.gateway.backend import Backend
from dyorc.leader_election.leader_discovery import LeaderDiscovery
from dyorc.store.lease_store import LeaseStore
from dyorc.transport.exchange import TensorExchange
from dyorc.transport.network import NodeNetwork


class Orchestrators(NamedTuple):
    """The leaders of a gateway's groups, as one.

    Attributes:
        backend: Runs requests.
        deployments: Changes which versions they serve.
        finish_reading: See `RemoteBackend`.
    """

    backend: Backend
    deployments: ControlClient
    finish_reading: Callable[[float], Awaitable[None]]


@contextlib.asynccontextmanager
async def orchestrators(settings: Settings, leases: LeaseStore, network: NodeNetwork | None) -> AsyncGenerator[Orchestrators]:
    """Follows the leaders of a gateway's groups while entered.

    Args:
        leases: Open; say who leads.
        network: The process's place among other machines; None without others.

    Raises:
        TransportError: If no arena can be made, or other machines cannot be let in.
    """
    name, node = f"gateway-{secrets.token_hex(8)}", MACHINE if network is None else network.host
    async with contextlib.AsyncExitStack() as stack:
        exchange = stack.enter_context(TensorExchange(name, node, settings.transport, network))
        tensors = Tensors(exchange)
        tensors.open()
        stack.callback(tensors.close)
        keys = None if network is None else network.secrets.keys
        backends: list[RemoteBackend] = []
        for group in settings.cluster.groups:
            leaders = await stack.enter_async_context(LeaderDiscovery(leases, group))
            backends.append(RemoteBackend(leaders, tensors, settings.link, keys))
        backend = backends[0] if len(backends) == 1 else GroupsBackend(backends, tensors)
        deployments = ControlClient({backend.group: backend.control for backend in backends})

        async def finish_reading(timeout_s: float) -> None:
            await asyncio.gather(*(backend.finish_reading(timeout_s) for backend in backends))

        yield Orchestrators(await stack.enter_async_context(backend), deployments, finish_reading)
