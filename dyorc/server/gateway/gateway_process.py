"""A gateway's process: serves clients, and has orchestrators run their requests. Wiring only."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping

from dyorc.config import Settings
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.tls import refuse_open_address
from dyorc.server.cluster_setup import network_of, shared_store
from dyorc.server.drain import Drain
from dyorc.server.endpoints import endpoints
from dyorc.server.garbage_collector import settle_garbage_collector
from dyorc.server.gateway.orchestrators import orchestrators
from dyorc.server.peer_context import PeerContext
from dyorc.server.request_pipeline import request_pipeline
from dyorc.server.running_server import RunningServer
from dyorc.telemetry.tracing.tracing_setup import tracing


@contextlib.asynccontextmanager
async def serve_gateway(
    settings: Settings, place: PeerContext | None = None, hurry: asyncio.Event | None = None
) -> AsyncGenerator[RunningServer]:
    """Serves clients while entered. There need not be any orchestrator yet.

    Args:
        place: Its place among other processes that share its ports; None if it is alone.
        hurry: When it is set, requests in flight are not waited for at the end.

    Raises:
        ConfigurationError: If a file named by the settings cannot be used, keys are missing, the store cannot be opened, or the
            server may not listen on its address.
        DefinitionError: If the setting names no store.
        OSError: If the address is not available.
    """
    refuse_open_address(settings.gateway)  # before anything starts
    network = network_of(settings.cluster)
    drain = Drain(settings.gateway.drain_timeout_s, hurry or asyncio.Event())
    async with contextlib.AsyncExitStack() as stack:
        traces = stack.enter_context(tracing(settings.telemetry, os.environ))
        store = await stack.enter_async_context(shared_store(settings))
        backend, deployments, finish_reading = await stack.enter_async_context(orchestrators(settings, store, network))
        stack.push_async_callback(drain.finish, finish_reading)
        siblings = None if place is None else place.siblings
        inlet = stack.enter_context(request_pipeline(backend, settings, siblings, traces))
        deployments.drain_by(inlet.service.admission.begin_epoch)
        inlet.service.deployments = deployments
        listener = None if place is None else await place.join(inlet.service, settings.gateway)
        jobs = await stack.enter_async_context(Jobs(inlet.service, store, settings.jobs, is_store_open=True))
        ends = await stack.enter_async_context(endpoints(inlet, jobs, drain, listener))
        settle_garbage_collector()
        with drain:
            yield RunningServer(ends.url, ends.grpc_address, inlet.service.catalog, backend.status, _no_complaints)


async def _no_complaints() -> Mapping[str, str]:
    return {}
