"""A gateway's process: serves clients, whose requests orchestrators run. Wiring only."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

import structlog

from dyorc.answering.tensor_exchange import Tensors
from dyorc.cluster.control_client import ControlClient
from dyorc.cluster.groups_backend import GroupsBackend
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.config import Settings
from dyorc.gateway.backend import Backend
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.tls import refuse_open_address
from dyorc.leader_election.leader_discovery import LeaderDiscovery
from dyorc.server.cluster_setup import network_of, shared_store
from dyorc.server.peer_context import PeerContext
from dyorc.server.request_pipeline import request_pipeline, serve_endpoints
from dyorc.server.running_server import RunningServer
from dyorc.server.stop_signals import Drain
from dyorc.store.lease_store import LeaseStore
from dyorc.system.garbage_collector import settle_garbage_collector
from dyorc.system.linux_only import require_linux
from dyorc.telemetry.tracing.tracer import tracing
from dyorc.transport.cluster_network import NodeNetwork, node_name
from dyorc.transport.tensor_path import TensorExchange

_log = structlog.get_logger("dyorc.server")


@contextlib.asynccontextmanager
async def serve_gateway(
    settings: Settings, place: PeerContext | None = None, hurry: asyncio.Event | None = None
) -> AsyncGenerator[RunningServer]:
    """Serves clients while entered. The orchestrators may start later.

    Args:
        place: This process among others that share its ports; None if it is alone.
        hurry: Once it is set, the end does not wait for requests in flight.

    Raises:
        ConfigurationError: If a file named by the settings cannot be used, keys are missing, the store cannot be opened, or the
            server may not listen on its address.
        DefinitionError: If the setting names no store.
        OSError: If the address is not available.
    """
    require_linux("a gateway apart from its orchestrator needs", "`dyorc serve --in-process` does both in one process")
    refuse_open_address(settings.gateway)  # before anything starts
    if folder := settings.telemetry.histories.folder:
        reason = "a gateway sees no calls; dyorc orchestrator records histories if it has this setting"
        _log.warning("histories_recorded_elsewhere", folder=folder, reason=reason)
    network = network_of(settings.cluster)
    drain = Drain(settings.gateway.drain_timeout_s, hurry or asyncio.Event())
    async with contextlib.AsyncExitStack() as stack:
        traces = stack.enter_context(tracing(settings.telemetry, os.environ))
        store = await stack.enter_async_context(shared_store(settings))
        backend, deployments, finish_reading = await stack.enter_async_context(orchestrators(settings, store, network))
        stack.push_async_callback(drain.finish, finish_reading)
        siblings = None if place is None else place.siblings
        pipeline = stack.enter_context(request_pipeline(backend, settings, siblings, traces))
        service = pipeline.service
        deployments.drain_by(service.admission.begin_epoch)
        service.deployments = deployments
        listener = None if place is None else await place.join(service, settings.gateway)
        jobs = await stack.enter_async_context(Jobs(service, store, settings.jobs, is_store_open=True))
        endpoints = await stack.enter_async_context(serve_endpoints(pipeline, jobs, drain, listener))
        settle_garbage_collector()
        with drain:
            yield RunningServer(endpoints.url, endpoints.grpc_address, service.catalog, backend.status)


class Orchestrators(NamedTuple):
    """The leaders of a gateway's groups, as one backend.

    Attributes:
        backend: Runs requests.
        deployments: Changes which versions they serve.
        finish_reading: See `RemoteBackend.finish_reading`.
    """

    backend: Backend
    deployments: ControlClient
    finish_reading: Callable[[float], Awaitable[None]]


@contextlib.asynccontextmanager
async def orchestrators(settings: Settings, leases: LeaseStore, network: NodeNetwork | None) -> AsyncGenerator[Orchestrators]:
    """Follows the leaders of a gateway's groups while entered.

    Args:
        leases: The store of the groups' leases, open.
        network: How this process reaches other machines; None without any.

    Raises:
        TransportError: If no arena can be made, or other machines cannot be let in.
    """
    name = f"gateway-{secrets.token_hex(8)}"
    async with contextlib.AsyncExitStack() as stack:
        exchange = stack.enter_context(TensorExchange(name, node_name(network), settings.transport, network))
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
